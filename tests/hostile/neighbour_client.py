"""The well-behaved client of `neighbour.py`: produces until its input ends, then prints each latency in milliseconds."""

from __future__ import annotations

import select
import sys
import time

from tests.hostile.neighbour import INTERVAL_SECONDS, produce_frame
from tests.kit.wire import BlockingWire, parse_address


def main(address: str) -> None:
    frame = produce_frame()
    latencies = []
    with BlockingWire(parse_address(address)) as wire:
        for _ in range(20):  # the first ones pay for imports and files
            wire.send(frame)
            wire.receive()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        due = time.monotonic()
        while not select.select([sys.stdin], [], [], 0)[0]:
            time.sleep(max(due - time.monotonic(), 0))
            wire.send(frame)
            try:
                wire.receive()
            except ConnectionError:
                sys.exit("the broker hung up")
            latencies.append((time.monotonic() - due) * 1000)
            due += INTERVAL_SECONDS
    sys.stdout.write(" ".join(map(str, latencies)))


if __name__ == "__main__":
    main(sys.argv[1])
