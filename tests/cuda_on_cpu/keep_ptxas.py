"""Runs nvcc and stores ptxas's report of registers, shared memory and spills next to the object.

CMake calls it in place of nvcc (CUDA_COMPILER_LAUNCHER), with nvcc's command line.
"""

import re
import subprocess
import sys

done = subprocess.run(sys.argv[1:], stderr=subprocess.PIPE, text=True)
about = re.compile(r"^(ptxas info|\s*Function properties|\s+\d+ bytes (stack|cumulative)|$)")
lines = done.stderr.splitlines()
if "-o" in sys.argv:
    with open(sys.argv[sys.argv.index("-o") + 1] + ".ptxas", "w") as kept:
        kept.writelines(f"{line}\n" for line in lines if about.match(line))
print(*(line for line in lines if not about.match(line)), sep="\n", end="", file=sys.stderr)
sys.exit(done.returncode)
