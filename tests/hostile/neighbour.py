"""A well-behaved client beside an attack: starts a broker, sends one of `frames.ATTACKS`, and prints what the client felt.

    python -m tests.hostile.neighbour [NAME ...]

The client produces a small batch with acks=all forty times a second, on a connection and in a process of its own. Each of its
latencies counts from the moment when the batch was due, so a broker that stands still is felt by every batch of that time.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import threading
import time
from typing import Final

from benchmarks.odradek_node import OdradekNode
from tests.hostile.frames import ATTACKS, PARTITION_COUNT, TOPIC
from tests.kit.cluster import peak_memory_bytes
from tests.kit.requests import batch_of, produce_request
from tests.kit.wire import BlockingWire, parse_address, request_frame

from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest

INTERVAL_SECONDS: Final = 0.025
_QUIET: Final = "beside"
_BEFORE_SECONDS: Final = 0.5
_AFTER_SECONDS: Final = 0.5


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ATTACKS))
    parser.add_argument(
        "--seconds-max", type=float, default=60.0, help="the longest wait for an attack's answer"
    )
    chosen = parser.parse_args(arguments)
    sys.stdout.write(
        f"{'attack':<38}{'sent kB':>9}{'answer s':>10}{'p50 ms':>8}{'p99 ms':>8}{'max ms':>9}{'RSS MB':>8}\n"
    )
    for name in chosen.names or ATTACKS:
        _report(name, chosen.seconds_max)


def _report(name: str, seconds_max: float) -> None:
    attack = ATTACKS[name]()
    with OdradekNode() as broker:
        address = parse_address(broker.bootstrap)
        with BlockingWire(address) as wire:
            wire.ask(_creation(), 5)
        client = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.neighbour_client", broker.bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None
        assert client.stdin is not None
        client.stdout.readline()  # it is under way
        time.sleep(_BEFORE_SECONDS)
        started = time.monotonic()
        outcome = _attacked(address, attack, seconds_max)
        seconds = time.monotonic() - started
        time.sleep(_AFTER_SECONDS)
        rss = peak_memory_bytes(broker.pid)
        client.stdin.close()
        latencies = sorted(map(float, client.stdout.read().split()))
        client.wait()
    sys.stdout.write(
        f"{name:<38}{len(attack) / 1000:>9.0f}{seconds:>9.1f}{outcome}"
        f"{_part(latencies, 0.5):>8.1f}{_part(latencies, 0.99):>8.1f}{latencies[-1]:>9.1f}{rss / 1e6:>8.0f}\n"
    )
    sys.stdout.flush()


def _part(latencies: list[float], part: float) -> float:
    return latencies[min(int(len(latencies) * part), len(latencies) - 1)]


def _attacked(address: tuple[str, int], attack: bytes, seconds_max: float) -> str:
    """Send it and read until every request of it is answered: " ", "x" when the connection ended, "!" when time was up."""
    with BlockingWire(address, timeout_s=seconds_max) as wire:
        sender = threading.Thread(target=_send, args=(wire, attack), daemon=True)
        sender.start()
        try:
            for _ in range(_frame_count(attack)):
                wire.receive()
        except TimeoutError:
            return "!"
        except OSError:
            return "x"
    return " "


def _send(wire: BlockingWire, attack: bytes) -> None:
    try:
        wire.send(attack)
    except OSError:
        return  # the broker hung up; the reader says so


def _frame_count(frames: bytes) -> int:
    count = position = 0
    while position < len(frames):
        position += 4 + struct.unpack_from(">i", frames, position)[0]
        count += 1
    return count


def _creation() -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=TOPIC, num_partitions=PARTITION_COUNT, replication_factor=1),
        CreatableTopic(name=_QUIET, num_partitions=1, replication_factor=1),
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=10_000)


def produce_frame() -> bytes:
    return request_frame(produce_request(_QUIET, bytes(batch_of([b"x" * 100])), timeout_ms=30_000), 9)


if __name__ == "__main__":
    main(sys.argv[1:])
