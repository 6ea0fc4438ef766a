"""Drive the scripts at Apache Kafka itself and record its answers; or show how they, or ours, differ from the recorded.

    .venv/bin/python -m tests.differential.record [SCRIPT...]            record
    .venv/bin/python -m tests.differential.record --check [SCRIPT...]    Kafka once more: is the recording repeatable?
    .venv/bin/python -m tests.differential.record --odradek [SCRIPT...]  Odradek: every difference, allowed or not

Kafka is fetched with Maven where it is not in the cache (`benchmarks/peer`), and needs Java.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.odradek_node import Node, OdradekNode
from benchmarks.peer import KafkaNode, PeerAbsentError, fetch_peer
from tests.differential import comparison
from tests.differential.asker import NotServedError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.record")
    parser.add_argument("scripts", nargs="*", default=comparison.SCRIPTS, metavar="SCRIPT")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--odradek", action="store_true")
    options = parser.parse_args()
    together = [script for script in options.scripts if not comparison.has_own_broker(script)]
    alone = [[script] for script in options.scripts if comparison.has_own_broker(script)]
    differences = 0
    try:
        for scripts in filter(None, [together, *alone]):
            with _node(comparison.settings_of(scripts[0]), odradek=options.odradek) as node:
                differences |= _drive(node, scripts, keep=not (options.check or options.odradek))
    except PeerAbsentError as reason:
        sys.stderr.write(f"absent: {reason}\n")
        return 3
    return differences


def _node(settings: dict[str, str], *, odradek: bool) -> KafkaNode | OdradekNode:
    if odradek:
        return OdradekNode(settings=settings)
    version = comparison.ANSWERS.name.removeprefix("kafka-")
    return KafkaNode(fetch_peer(version=version), settings=settings)


def _drive(node: Node, scripts: list[str], *, keep: bool) -> int:
    difference_count = 0
    for script in scripts:
        try:
            steps = comparison.run(script, node.bootstrap)
        except NotServedError as missing:
            _say(f"{script}: {missing} is not served")
            continue
        if keep:
            comparison.record(script, steps)
            _say(f"{script}: {len(steps)} answers recorded")
            continue
        for difference in comparison.compare(script, comparison.recorded(script), steps):
            difference_count += 1
            why = comparison.allowance(difference)
            _say(f"{difference}" + (f"\n    allowed {why.why}" if why else ""))
    return 1 if difference_count else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
