#!/bin/sh
# Check that the machine has Python and a compiler before anything is set up. Called by the Makefile:
#   sh tools/preflight.sh PYTHON [CXX [present]]     present: do not ask for the venv module
python=$1
compiler=${2%% *} # of 'ccache g++' the first word

fail() {
    printf 'needle: %s\n' "$1" >&2
    exit 1
}

command -v "$python" >/dev/null 2>&1 ||
    fail "no Python called '$python'. Install Python 3.10 to 3.13 (Debian, Ubuntu: sudo apt-get \
install python3 python3-venv; macOS: brew install python@3.13), or name one: make PYTHON=python3.12"

"$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' ||
    fail "'$python' is $("$python" --version 2>&1), needle wants 3.10 to 3.13. Name another one: \
make PYTHON=python3.12"

[ "$3" = present ] || "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
    fail "'$python' has no venv module. Install it (Debian, Ubuntu: sudo apt-get install \
python3-venv), or name another Python: make PYTHON=python3.12"

[ -n "$compiler" ] && command -v "$compiler" >/dev/null 2>&1 && exit 0
[ -n "$compiler" ] && fail "no compiler called '$compiler' (from CXX); unset CXX or correct it"
for name in c++ g++ clang++; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
fail "no C++ compiler. Install gcc 11 or later, or clang 14 or later (Debian, Ubuntu: sudo apt-get \
install g++; Fedora: sudo dnf install gcc-c++; macOS: xcode-select --install), or name one: \
make CXX=/path/to/c++"
