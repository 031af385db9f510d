"""Do one training step of LeNet-5 with 64 images; study_start.py times the program.

``python -m apps.bench.against.first_step CONTESTANT SETTINGS``
"""

from __future__ import annotations

import sys

from apps.bench.harness.settings import Settings

from .sides import CONTESTANTS
from .study_models import training_step

if __name__ == "__main__":
    side = CONTESTANTS[sys.argv[1]](Settings.from_json(sys.argv[2]))
    training_step(side, "lenet5", 1, 64)()
