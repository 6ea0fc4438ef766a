"""`python -m tests.faults --minutes 30`: three real brokers, real clients, real faults, and the count of what was lost."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

from tests.faults.namespaces import absent, enter_hub, hub
from tests.faults.run import Terms, run
from tests.faults.standstill import left

from odradek.testing.zookeeper import absent as zookeeper_absent


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long faults go on (30)")
    parser.add_argument(
        "--faults", type=int, default=0, help="at least so many, though it take up to twice as long"
    )
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
        "--everything", action="store_true", help="ZooKeeper and namespaces, where there can be any"
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="with TLS, SCRAM logins and access rules, which change meanwhile, for clients and among brokers",
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="FAULT", help="this fault; may be repeated"
    )
    parser.add_argument(
        "--client-log",
        type=Path,
        metavar="FILE",
        help="what copiers and members do, as librdkafka logs it",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result goes as JSON, too")
    return parser


def main() -> int:
    chosen = _parser().parse_args()
    if chosen.everything:
        chosen.zookeeper = not _is_absent("ZooKeeper", zookeeper_absent())
        chosen.namespaces = hub() is not None or not _is_absent("network partitions", absent())
    elif chosen.namespaces and hub() is None and _is_absent("network partitions", absent()):
        return 1
    if chosen.namespaces and hub() is None:
        return enter_hub(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and what was made is unmade
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1 << 31)
    terms = Terms(
        seconds=chosen.minutes * 60,
        faults_min=chosen.faults,
        seed=seed,
        per_second=chosen.per_second,
        writers=chosen.writers,
        partitions=chosen.partitions,
        zookeeper=chosen.zookeeper,
        kinds=tuple(chosen.only),
        full=True,
        secured=chosen.secure,
        talkative=chosen.client_log is not None,
    )
    client_log = sys.stderr if chosen.client_log is None else _own_stderr(chosen.client_log)
    with tempfile.TemporaryDirectory(prefix="odradek-faults-") as temporary:
        directory = chosen.keep or Path(temporary)
        began = time.monotonic()
        run_result = run(terms, directory, tell=lambda line: _say(line, client_log))
        _say(run_result.text(time.monotonic() - began), sys.stdout)
        if chosen.json is not None:
            chosen.json.parent.mkdir(parents=True, exist_ok=True)
            chosen.json.write_text(json.dumps(run_result.as_json(), indent=2) + "\n")
    code = 0 if run_result.is_clean else 1
    if left:  # Python would wait for them
        os._exit(code)
    return code


def _is_absent(what: str, reason: str | None) -> bool:
    """Whether there is a reason, said aloud; once, and not again by the process in the hub."""
    if reason is not None and hub() is None:
        _say(f"absent: {what}: {reason}", sys.stderr)
    return reason is not None


def _own_stderr(file: Path) -> TextIO:
    """A stream of our own to where standard error goes. Standard error itself, which librdkafka writes to, is `file` now."""
    own = os.fdopen(os.dup(2), "w")
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 2)
    os.close(target)
    return own


def _say(line: str, stream: TextIO) -> None:
    stream.write(f"{line}\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
