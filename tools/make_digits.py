"""Write the packaged digits from scikit-learn's copy: ``python tools/make_digits.py``.

Needs scikit-learn. The same input gives the same bytes. needle.data.Digits reads them.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from needle.data.datasets import digits  # noqa: E402
from needle.data.formats.idx import write_idx  # noqa: E402


def main() -> None:
    """Write both files, replacing the old ones."""
    source = load_digits()
    write_idx(digits.IMAGES, source.images.astype(np.uint8))
    write_idx(digits.LABELS, source.target.astype(np.uint8))
    print(f"wrote {len(source.target)} digits to {digits.FOLDER}")


if __name__ == "__main__":
    main()
