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

// The tables that run on this machine, worst first.
const std::vector<const KernelTable*>& usable_tables() {
  static const std::vector<const KernelTable*> tables = [] {
    std::vector<const KernelTable*> usable;
    for (const KernelTable* compiled : {
#define ROW(isa) &isa::table,
             NEEDLE_ISAS(ROW)
#undef ROW
         }) {
      if (cpu_supports(compiled->isa)) usable.push_back(compiled);
    }
    return usable;
  }();
  return tables;
}

std::atomic<const KernelTable*> selected{nullptr};

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const KernelTable* table : usable_tables()) names.emplace_back(table->isa);
  return names;
}

const KernelTable& selected_table() {
  const KernelTable* table = selected.load(std::memory_order_acquire);
  return table != nullptr ? *table : *usable_tables().back();
}

void select_isa(const std::string& name) {
  std::string known;
  for (const KernelTable* table : usable_tables()) {
    if (name == table->isa) {
      selected.store(table, std::memory_order_release);
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(table->isa);
  }
  raise_error("select_isa: '" + name +
              "' is not an instruction set that runs here; choose one of " + known);
}

}  // namespace needle::cpu
