#include "select.h"

#include <atomic>

#include "core/check.h"
#include "core/cpu_features.h"
#include "isa_list.h"

namespace needle::cpu {

#define ROW(isa)                               \
  namespace isa {                              \
  extern const KernelTable table;              \
  extern const PreparedConv2d prepared_conv2d; \
  }
NEEDLE_ISAS(ROW)
#undef ROW

namespace {

struct Target {
  const KernelTable* table;
  const PreparedConv2d* prepared_conv2d;
};

// The targets that run on this machine, worst first.
const std::vector<Target>& usable_targets() {
  static const std::vector<Target> targets = [] {
    std::vector<Target> usable;
    for (const Target& compiled : {
#define ROW(isa) Target{&isa::table, &isa::prepared_conv2d},
             NEEDLE_ISAS(ROW)
#undef ROW
         }) {
      if (cpu_supports(compiled.table->isa)) usable.push_back(compiled);
    }
    if (usable.empty()) {
      raise_error("the kernels were compiled for another processor; run make clean build");
    }
    return usable;
  }();
  return targets;
}

std::atomic<const Target*> selected{nullptr};

const Target& selected_target() {
  const Target* target = selected.load(std::memory_order_acquire);
  return target != nullptr ? *target : usable_targets().back();
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const Target& target : usable_targets()) names.emplace_back(target.table->isa);
  return names;
}

const KernelTable& selected_table() { return *selected_target().table; }

const PreparedConv2d& selected_prepared_conv2d() { return *selected_target().prepared_conv2d; }

void select_isa(const std::string& name) {
  std::string known;
  for (const Target& target : usable_targets()) {
    if (name == target.table->isa) {
      selected.store(&target, std::memory_order_release);
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(target.table->isa);
  }
  raise_error("select_isa: '" + name +
              "' is not an instruction set that runs here; choose one of " + known);
}

}  // namespace needle::cpu
