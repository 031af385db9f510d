#!/bin/sh
# Check that the machine has Python and a compiler before anything is set up. Called by the Makefile:
#   sh tools/preflight.sh PYTHON [CXX [present]]     present: do not ask for the venv module
newest=15 # the minor version of the newest Python 3 that the tests have run on
python=$1
compiler=${2%% *} # of 'ccache g++' the first word

fail() {
    printf 'needle: %s\n' "$1" >&2
    exit 1
}

command -v "$python" >/dev/null 2>&1 ||
    fail "no Python called '$python'. Install Python 3.10 or later (Debian, Ubuntu: sudo apt-get \
install python3 python3-venv; macOS: brew install python), or name one: make PYTHON=python3.12"

version=$("$python" -c 'import sys, sysconfig
minor = sys.version_info[1] if sys.version_info >= (3,) else -1
print("%d %s" % (minor, "free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""))') ||
    fail "'$python' does not start. Name another Python: make PYTHON=python3.12"

[ "${version%% *}" -ge 10 ] ||
    fail "'$python' is $("$python" --version 2>&1), needle needs 3.10 or later. Name another one: \
make PYTHON=python3.12"

[ "${version#* }" != free-threaded ] ||
    fail "'$python' is a free-threaded build of Python, in which needle does not work: it needs \
reference counts that the GIL protects. Name a Python that has the GIL: make PYTHON=python3.12"

[ "${version%% *}" -le $newest ] ||
    printf 'needle: warning: %s is newer than 3.%s, the newest Python that needle was tested with\n' \
        "$("$python" --version 2>&1)" $newest >&2

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
