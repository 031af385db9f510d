// The instruction sets of this machine's processor.
#pragma once

namespace needle {

// Returns true if code compiled for the instruction set `name` (a row of CMakeLists.txt) runs here;
// the operating system must support its registers too.
bool cpu_supports(const char* name);

}  // namespace needle
