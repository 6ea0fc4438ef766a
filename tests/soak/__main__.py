"""`python -m tests.soak --hours 2`: a cluster at work for hours, with unrest and strangers, and the question what grows."""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.soak.picture import draw
from tests.soak.run import Result, Terms, run
from tests.soak.samples import series
from tests.soak.slopes import growth, table


def main() -> int:
    chosen = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and what was started is ended
    chosen.output.mkdir(parents=True, exist_ok=True)
    file = chosen.output / "samples.jsonl"
    if chosen.again:
        _show(file, None, chosen.output)
        return 0
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1 << 31)
    seconds = chosen.minutes * 60 if chosen.minutes is not None else chosen.hours * 3600
    terms = Terms.of(seconds, seed, chosen.pace)
    _say(f"seed {seed}, {seconds / 60:.0f} minutes at {chosen.pace:g} of the usual rates; samples in {file}")
    with tempfile.TemporaryDirectory(prefix="odradek-soak-") as temporary:
        run_result = run(terms, chosen.keep or Path(temporary), file, tell=_say)
    _show(file, run_result, chosen.output)
    return 0 if run_result.is_clean else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="how long it goes on (2)")
    parser.add_argument("--minutes", type=float, default=None, help="the same, in minutes")
    parser.add_argument("--seed", type=int, default=None, help="of what is random (drawn)")
    parser.add_argument(
        "--pace",
        type=_pace,
        default=1.0,
        help="a part of the usual rates, for a machine that has other work (1)",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("artifacts/soak"), help="where samples, table and picture go"
    )
    parser.add_argument("--keep", type=Path, help="a directory for the brokers' data and logs, kept")
    parser.add_argument(
        "--again", action="store_true", help="only the table and the picture, of samples that are there"
    )
    return parser.parse_args()


def _pace(text: str) -> float:
    pace = float(text)
    if not 0.01 <= pace <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is no pace: give a number from 0.01 to 100")
    return pace


def _show(file: Path, run_result: Result | None, output: Path) -> None:
    all_series = series(file)
    growths = (
        run_result.growths
        if run_result
        else [growth(name, points) for name, points in sorted(all_series.items())]
    )
    report = table(growths) + "\nasyncio tasks are not counted: a broker has no way to be asked for them\n"
    if run_result is not None:
        report += run_result.text() + "\n"
        (output / "result.json").write_text(json.dumps(run_result.as_json(), indent=2) + "\n")
    (output / "table.txt").write_text(report)
    sys.stdout.write(report)
    minutes = max(points[-1][0] for points in all_series.values()) / 60
    draw(
        all_series,
        f"{minutes:.0f} minutes of soak: brokers 1 and 2 stay, broker 3 comes and goes",
        output / "soak.png",
    )
    _say(f"picture: {output / 'soak.png'}")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
