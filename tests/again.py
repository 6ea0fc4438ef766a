"""May the tests that failed be tried again? `python -m tests.again --most 3` names them, and refuses when there are more.

A test that passes only when it runs alone hides a race, in itself or in what it tests: its name here is the start of a search.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CACHE: Final = Path(".pytest_cache/v")
SOME_FAILED: Final = 1  # pytest's exit code when it ran to its end


def main(arguments: Sequence[str] | None = None, cache: Path = CACHE) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.again", description=__doc__)
    parser.add_argument("--most", type=int, default=3, metavar="N", help="refuse when more failed (3)")
    most = parser.parse_args(arguments).most
    try:
        ended = json.loads((cache / "odradek/exit").read_text())
        names = sorted(json.loads((cache / "cache/lastfailed").read_text()))
    except FileNotFoundError as error:
        print(
            f"{error.filename} is not there: no run of the tests is known that failed; nothing is tried again"
        )
        return 1
    if ended != SOME_FAILED:
        print(
            f"the last run ended with exit code {ended}, not with tests that failed; nothing is tried again"
        )
        return 1
    print(f"{len(names)} failed:", *names, sep="\n  ")
    if not 0 < len(names) <= most:
        print(f"more than {most}: nothing is tried again (--most)" if names else "nothing to try again")
        return 1
    print("each is tried once more, alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
