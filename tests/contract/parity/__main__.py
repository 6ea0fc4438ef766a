"""Compares our declarations with Kafka's, and prints what is missing.

    python -m tests.contract.parity              beside the facts that are recorded in the repository
    python -m tests.contract.parity --jars       beside the newest jars in the cache
    python -m tests.contract.parity --newest     beside the newest jars that Maven has
    python -m tests.contract.parity --record     the same, and keeps the facts in the repository
    python -m tests.contract.parity --page       writes the part of docs/compatibility.md about the recorded facts
    python -m tests.contract.parity --all        also prints what differs for a reason

Ends with 1 if something differs without a reason, or a reason is no longer needed.
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby

from benchmarks.peer import PeerAbsentError, cached_peer, fetch_peer
from tests.contract.parity.comparison import differences, outdated, reason_for, unexplained
from tests.contract.parity.page import write
from tests.contract.parity.recording import facts_of, keep, recorded


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.contract.parity")
    for name in ("jars", "newest", "record", "page", "all"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    if options.jars or options.newest or options.record:
        try:
            jars = cached_peer() if options.jars else fetch_peer(newest=True)
        except PeerAbsentError as error:
            sys.stderr.write(f"absent: {error}\n")
            return 2
        version, facts = jars.version, facts_of(jars)
        if options.record:
            sys.stdout.write(f"wrote {keep(version, facts)}\n")
    else:
        version, facts = recorded()
    differing = differences(facts)
    missing = unexplained(differing)
    stale = outdated(differing)
    sys.stdout.write(
        f"Kafka {version}: {len(differing)} differences, {len(missing)} of them without a reason\n"
    )
    for section, group in groupby(missing, key=lambda difference: difference.section):
        sys.stdout.write(f"\n{section}\n" + "".join(f"  {difference}\n" for difference in group))
    if options.all:
        for difference in differing:
            reason = reason_for(difference)
            if reason is not None:
                sys.stdout.write(f"  {difference} ({reason.title})\n")
    for pattern in stale:
        sys.stdout.write(f"no longer needed in reasons.py: {pattern}\n")
    if options.page and not missing:
        write()
    return 1 if missing or stale else 0


if __name__ == "__main__":
    sys.exit(main())
