"""`python -m tests.hostile`: everything that strangers, clumsy clients and full disks can do to a broker, and who notices.

Exits with 1 when a bound does not hold: of memory, descriptors, sockets, log bytes, errors, answers. How long the bystander
waited is reported; it decides with `--strict` alone, since other work on the machine may hold up anyone.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from pathlib import Path

from tests.hostile.attack import Scale
from tests.hostile.attacks import ATTACKS
from tests.hostile.table import is_bad, table
from tests.hostile.trial import Outcome, try_attack


def main() -> int:
    chosen = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and what was started is ended
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1 << 31)
    scale = Scale(
        is_full=not chosen.short,
        seed=seed,
        seconds=chosen.seconds,
        frame_count=chosen.frames,
        first_batch=chosen.batch,
        keep=chosen.keep,
    )
    _say(f"seed {seed}")
    outcomes: list[Outcome] = []
    for attack in ATTACKS:
        if chosen.only and not any(word in attack.name for word in chosen.only):
            continue
        for brokers in attack.brokers:
            if chosen.brokers is not None and brokers != chosen.brokers:
                continue
            began = time.monotonic()
            outcome = try_attack(attack, brokers, scale, _say)
            outcomes.append(outcome)
            _say(f"{outcome.title}: {_word(outcome)}, {time.monotonic() - began:.0f} s")
            if chosen.json is not None:  # after each: a run that is cut off has its figures all the same
                _write(chosen.json, seed, outcomes)
    sys.stdout.write(table(outcomes, is_strict=chosen.strict) + "\n")
    return 1 if any(is_bad(outcome, is_strict=chosen.strict) for outcome in outcomes) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORD", help="attacks with WORD in their names"
    )
    parser.add_argument("--brokers", type=int, help="only on so many brokers: 1 or 3")
    parser.add_argument("--seed", type=int, default=None, help="of what is random (drawn)")
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="the most for an attack that could go on (300)"
    )
    parser.add_argument("--frames", type=int, default=1_000_000, help="generated frames (1,000,000)")
    parser.add_argument(
        "--batch", type=int, default=0, help="generated frames begin with this batch, which a fault names"
    )
    parser.add_argument("--short", action="store_true", help="as `make test` does it")
    parser.add_argument("--keep", type=Path, help="a directory for the brokers' data and logs, kept")
    parser.add_argument(
        "--strict", action="store_true", help="latency targets decide, too: on a quiet machine"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the outcomes go as JSON, too")
    return parser.parse_args()


def _word(outcome: Outcome) -> str:
    if outcome.absent is not None:
        return f"absent: {outcome.absent}"
    return "; ".join(outcome.wrongs) or "; ".join(outcome.slow) or "holds"


def _write(file: Path, seed: int, outcomes: list[Outcome]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    response = {"seed": seed, "outcomes": [outcome.as_json() for outcome in outcomes]}
    file.write_text(json.dumps(response, indent=2, default=str) + "\n")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
