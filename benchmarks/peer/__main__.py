"""`python -m benchmarks.peer`: run Apache Kafka until Ctrl-C or SIGTERM; prints its bootstrap address."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from benchmarks.peer import KafkaNode, PeerAbsentError, fetch_peer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer", description=__doc__)
    parser.add_argument("--version", help="a version; default: the newest 4.x in the cache, else published")
    parser.add_argument("--newest", action="store_true", help="ask Maven even when a version is in the cache")
    parser.add_argument("--fetch-only", action="store_true", help="fetch the jars and print their directory")
    parser.add_argument("--data", type=Path, help="keep data here; by default a directory removed at the end")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a Kafka setting")
    options = parser.parse_args()
    try:
        jars = fetch_peer(version=options.version, newest=options.newest)
        if options.fetch_only:
            print(jars.directory)
            return 0
        settings = dict(pair.split("=", 1) for pair in options.set)
        with KafkaNode(jars, settings=settings, directory=options.data) as node:
            print(f"ready {node.bootstrap}", flush=True)
            print(f"{node.name}, pid {node.pid}, directory {node.directory}", file=sys.stderr, flush=True)
            _wait_for_signal()
    except PeerAbsentError as reason:
        print(f"absent: {reason}", file=sys.stderr)
        return 3
    return 0


def _wait_for_signal() -> None:
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    asked.wait()


if __name__ == "__main__":
    sys.exit(main())
