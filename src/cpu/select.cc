#include "select.h"

#include <atomic>

#include "core/check.h"
#include "core/cpu_features.h"
#include "isa_list.h"

namespace needle::cpu {

#define ROW(isa)                  \
  namespace isa {                 \
  extern const KernelTable table; \
  }
NEEDLE_ISAS(ROW)
#undef ROW

namespace {

void inherit(KernelTable& table, const KernelTable& lower) {
#define NEEDLE_ROW(name, arguments) \
  if (table.name == nullptr) table.name = lower.name;
  NEEDLE_KERNELS(NEEDLE_ROW)
#undef NEEDLE_ROW
}

// The tables that run here, worst first, each complete.
const std::vector<KernelTable>& usable_tables() {
  static const std::vector<KernelTable> tables = [] {
    std::vector<KernelTable> usable;
    for (const KernelTable* compiled : {
#define ROW(isa) &isa::table,
             NEEDLE_ISAS(ROW)
#undef ROW
         }) {
      if (!cpu_supports(compiled->isa)) continue;
      usable.push_back(*compiled);
      if (usable.size() > 1) inherit(usable.back(), usable[usable.size() - 2]);
    }
    return usable;
  }();
  return tables;
}

std::atomic<const KernelTable*> selected{nullptr};

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const KernelTable& table : usable_tables()) names.emplace_back(table.isa);
  return names;
}

const KernelTable& selected_table() {
  const KernelTable* table = selected.load(std::memory_order_acquire);
  return table != nullptr ? *table : usable_tables().back();
}

void select_isa(const std::string& name) {
  std::string known;
  for (const KernelTable& table : usable_tables()) {
    if (name == table.isa) {
      selected.store(&table, std::memory_order_release);
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(table.isa);
  }
  raise_error("select_isa: '" + name +
              "' is not an instruction set that runs here; choose one of " + known);
}

}  // namespace needle::cpu
