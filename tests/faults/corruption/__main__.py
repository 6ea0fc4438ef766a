"""`python -m tests.faults.corruption`: one replica's files are damaged: is anything lost, or served wrong?"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.corruption.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.corruption", description=__doc__)
    parser.add_argument("--trials", type=int, default=120, help="how many (120)")
    parser.add_argument("--seed", type=int, default=None, help="which damage, where (drawn)")
    parser.add_argument("--only", help="this kind of file alone")
    chosen = parser.parse_args()
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1 << 31)
    with tempfile.TemporaryDirectory(prefix="odradek-corruption-") as directory:
        run_result = run(
            chosen.trials,
            seed,
            Path(directory),
            kinds=[chosen.only] if chosen.only else None,
            tell=lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
        )
    sys.stdout.write(f"{run_result.text()}\n")
    return 0 if run_result.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
