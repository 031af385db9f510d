"""Copy a data set for train.py --source: python apps/upload.py --data cifar10 --to URL

``--to folder`` and ``--to packed`` write the copy below the data folder; a URL (s3://bucket/prefix)
or a path names another place. The same command continues an interrupted copy. Calls
needle.data.upload.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

if not __package__:  # run as a script, so make the package ``apps`` importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from apps.training.sources import SOURCES, open_source
from needle import config, data
from needle.errors import DataError, NeedleError


def put(name: str, to: str, packed: bool, data_dir: Path, download: bool = False) -> None:
    """Copy both splits of the data set to ``folder``, ``packed``, a URL or a path."""
    for split in ("train", "test"):
        dataset = open_source(name, "builtin", data_dir, split == "train", download)
        if packed or to == "packed":
            dataset = as_bytes(dataset)
        put_split(dataset, name, split, to, packed, data_dir)


def put_split(dataset: Any, name: str, split: str, to: str, packed: bool, data_dir: Path) -> None:
    """Copy one split; ``folder`` and ``packed`` lie below ``data_dir``."""
    if to == "packed":
        folder = data_dir / f"{name}-packed"
        folder.mkdir(parents=True, exist_ok=True)
        data.pack(dataset, folder / f"{split}.arrow")
        return
    url = str(data_dir / f"{name}-folder") if to == "folder" else to
    data.upload(dataset, f"{url.rstrip('/')}/{split}", packed=packed)


def as_bytes(dataset: Any) -> Any:
    """Return the data set; pixels stay uint8 (a quarter of the memory) if white is 255."""
    if getattr(dataset, "scale", None) == 255:
        dataset.dtype = "uint8"
    return dataset


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m needle upload", description="Copy a data set.")
    parser.add_argument("--data", required=True, help=", ".join(sorted(SOURCES)))
    parser.add_argument("--to", required=True, help="folder, packed, s3://bucket/prefix or a path")
    parser.add_argument(
        "--packed", action="store_true", help="write shards instead of an object for each image"
    )
    parser.add_argument("--data-dir", type=Path, help="folder of the data set's files")
    parser.add_argument("--download", action="store_true", help="download them if they are missing")
    given = parser.parse_args(arguments)
    data_dir = given.data_dir or Path(config.DATA_DIR.read())
    try:
        if given.data == "pictures" and given.data_dir is None:
            raise DataError("--data pictures: needs --data-dir, the folder of the pictures")
        put(given.data, given.to, given.packed, data_dir, given.download)
    except (NeedleError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{given.data} is complete in {given.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
