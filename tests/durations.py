"""Keeps how long each file took in the last `make test`, and prints the longest: `make durations`, after a full run.

The next run deals out its files by it (`scheduling.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.scheduling import DURATIONS_FILE, MeasuredDurations

CACHE: Final = Path(".pytest_cache/v")
SHORTEST_S: Final = 5.0
FEWEST_FILES: Final = 400


def main(arguments: Sequence[str] | None = None, cache: Path = CACHE, kept: Path = DURATIONS_FILE) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.durations", description=__doc__)
    parser.add_argument("--longest", type=int, default=30, metavar="N", help="print so many files (30)")
    longest = parser.parse_args(arguments).longest
    try:
        measured: dict[str, float] = json.loads((cache / MeasuredDurations.CACHE_KEY).read_text())
    except FileNotFoundError as error:
        print(f"{error.filename} is not there: run `make test` first")
        return 1
    if len(measured) < FEWEST_FILES:
        print(
            f"the last run had {len(measured)} files of tests: it was not a full one; run `make test` first"
        )
        return 1
    by_length = sorted(measured.items(), key=lambda entry: -entry[1])
    kept.write_text(
        json.dumps({file: round(s, 1) for file, s in sorted(by_length) if s >= SHORTEST_S}, indent=1) + "\n"
    )
    for file, seconds in by_length[:longest]:
        print(f"{seconds:8.1f} s  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
