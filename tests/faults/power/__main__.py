"""`python -m tests.faults.power --cuts 300`: power cuts on real file systems; what was acknowledged, and is it still there?"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

from tests.faults.power.images import absent, room
from tests.faults.power.run import Result, Terms, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.power", description=__doc__)
    parser.add_argument("--cuts", type=int, default=300, help="how many (300)")
    parser.add_argument("--seed", type=int, default=None, help="which cuts, when (drawn)")
    parser.add_argument(
        "--per-start", type=int, default=12, help="cuts before the cluster is made again (12)"
    )
    parser.add_argument("--per-second", type=int, default=400, help="records offered by the writers (400)")
    parser.add_argument(
        "--planted", action="store_true", help="with flush.before.ack=false: something must be lost"
    )
    parser.add_argument(
        "--keep", type=Path, help="a directory for what a cut left, if something is wrong with it"
    )
    parser.add_argument(
        "--resume",
        type=Path,
        help="a file that is brought up to date after each start; if it is there, go on from it",
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    chosen = parser.parse_args()
    reason = absent()
    if reason is not None:
        _say(f"power cuts are not tried: {reason}", sys.stderr)
        return 0
    noted = json.loads(chosen.resume.read_text()) if chosen.resume and chosen.resume.exists() else None
    drawn = noted["seed"] if noted else random.SystemRandom().randrange(1 << 31)
    terms = Terms(
        cuts=chosen.cuts,
        seed=chosen.seed if chosen.seed is not None else drawn,
        cuts_per_start=chosen.per_start,
        per_second=chosen.per_second,
        keep=chosen.keep,
        settings={"log.flush.before.ack": "false"} if chosen.planted else {},
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nothing stays mounted
    began = time.monotonic()
    with room() as directory:
        run_result = run(
            terms,
            directory,
            earlier=Result.resumed(terms, noted) if noted else None,
            tell=lambda line: _say(line, sys.stderr),
            note=lambda outcome: _write_down(outcome, chosen.resume),
        )
    text = json.dumps(run_result.as_json()) if chosen.json else run_result.text()
    _say(text, sys.stdout)
    _say(f"{time.monotonic() - began:.0f} s", sys.stderr)
    return 0 if run_result.is_clean != chosen.planted else 1


def _write_down(run_result: Result, place: Path | None) -> None:
    if place is not None:
        place.with_suffix(".new").write_text(json.dumps(run_result.as_json()))
        place.with_suffix(".new").replace(place)


def _say(line: str, stream: TextIO) -> None:
    stream.write(f"{line}\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
