#include "select.h"

#include <cstring>
#include <string>

#include "core/check.h"
#include "isa_list.h"

namespace needle::data {

#define ROW(isa)                \
  namespace isa {               \
  extern const StepTable steps; \
  }
NEEDLE_ISAS(ROW)
#undef ROW

const StepTable& step_table(const char* isa) {
  for (const StepTable* table : {
#define ROW(isa) &isa::steps,
           NEEDLE_ISAS(ROW)
#undef ROW
       }) {
    if (std::strcmp(table->isa, isa) == 0) return *table;
  }
  raise_error("step_table: '" + std::string(isa) + "' is no instruction set of this build");
}

}  // namespace needle::data
