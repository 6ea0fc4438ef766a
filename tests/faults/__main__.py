"""`python -m tests.faults --minutes 30`: three real brokers, real clients, real faults, and the count of what was lost."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

from tests.faults.namespaces import absent, enter_hub, hub
from tests.faults.run import Terms, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long faults go on (30)")
    parser.add_argument("--seed", type=int, default=None, help="which faults, in which order (drawn)")
    parser.add_argument(
        "--per-second", type=int, default=1500, help="records offered by all writers together (1500)"
    )
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--keep", type=Path, help="a directory for data and logs, kept")
    parser.add_argument(
        "--zookeeper",
        action="store_true",
        help="coordinate the brokers by a real ZooKeeper, and hurt it, too",
    )
    parser.add_argument(
        "--namespaces", action="store_true", help="a network namespace for each broker, and partitions (root)"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="FAULT", help="this fault; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    chosen = parser.parse_args()
    if chosen.namespaces and hub() is None:
        reason = absent()
        if reason is not None:
            _say(f"absent: {reason}", sys.stderr)
            return 1
        return enter_hub(sys.argv[1:])
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1 << 31)
    terms = Terms(
        seconds=chosen.minutes * 60,
        seed=seed,
        per_second=chosen.per_second,
        writers=chosen.writers,
        partitions=chosen.partitions,
        zookeeper=chosen.zookeeper,
        kinds=tuple(chosen.only),
        full=True,
    )
    with tempfile.TemporaryDirectory(prefix="odradek-faults-") as temporary:
        directory = chosen.keep or Path(temporary)
        began = time.monotonic()
        result = run(terms, directory, tell=lambda line: _say(line, sys.stderr))
        text = json.dumps(result.as_json()) if chosen.json else result.text(time.monotonic() - began)
        _say(text, sys.stdout)
    return 0 if result.is_clean else 1


def _say(line: str, stream: TextIO) -> None:
    stream.write(f"{line}\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
