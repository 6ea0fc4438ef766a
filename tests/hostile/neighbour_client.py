"""The well-behaved client of `neighbour.py`: produces until its input ends, then prints each latency in milliseconds."""

from __future__ import annotations

import select
import socket
import sys
import time

from tests.hostile.neighbour import INTERVAL_SECONDS, produce_frame
from tests.kit.frames import receive_frame


def main(port: int) -> None:
    frame = produce_frame()
    latencies = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(20):  # the first ones pay for imports and files
            connection.sendall(frame)
            receive_frame(connection)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        due = time.monotonic()
        while not select.select([sys.stdin], [], [], 0)[0]:
            time.sleep(max(due - time.monotonic(), 0))
            connection.sendall(frame)
            try:
                receive_frame(connection)
            except ConnectionError:
                sys.exit("the broker hung up")
            latencies.append((time.monotonic() - due) * 1000)
            due += INTERVAL_SECONDS
    sys.stdout.write(" ".join(map(str, latencies)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
