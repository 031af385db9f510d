// What this machine's processor can run.
#pragma once

namespace needle {

// Whether code compiled for the instruction set `name` (a row of CMakeLists.txt) runs here, the
// operating system's support for its registers included.
bool cpu_supports(const char* name);

}  // namespace needle
