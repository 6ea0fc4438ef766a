"""The server under test as the tests see it: its kind, its process, its log, and topics made for a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from benchmarks.odradek_node import Node
from benchmarks.peer import PeerAbsentError
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop import logins, wire
from tests.kit.cluster import peak_memory_bytes
from tests.kit.waiting import PATIENCE_S, eventually

ADMIN_SECONDS_MAX = 20.0
LOG_SECONDS_MAX = PATIENCE_S


@contextmanager
def running(kind: str, make_node: Callable[..., Node], settings: Mapping[str, str]) -> Iterator[Server]:
    """Yields a broker of the kind under test. Skips tests where there is none of that kind."""
    try:
        node = make_node(settings=settings).start()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    try:
        yield Server(kind=kind, node=node)
    finally:
        node.stop()


def share_settings(lock_ms: int) -> dict[str, str]:
    """Returns settings of a broker whose groups form at once, and whose share groups lock records for so long."""
    return {
        "group.initial.rebalance.delay.ms": "100",
        "offsets.topic.num.partitions": "5",
        "group.share.record.lock.duration.ms": str(lock_ms),
        "group.share.min.record.lock.duration.ms": "1000",
        "share.coordinator.state.topic.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


@dataclass(slots=True, kw_only=True)
class Server:
    kind: str
    """`odradek` or `kafka`."""
    node: Node
    log_mark: int = 0
    """Where the log stood when the running test began."""

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.node.bootstrap.rsplit(":", 1)
        return host, int(port)

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        admin = AdminClient({**logins.librdkafka(self.node.bootstrap), "log_level": 2})
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
        admin.create_topics([new], operation_timeout=ADMIN_SECONDS_MAX)[name].result(ADMIN_SECONDS_MAX)
        if self.kind == "kafka":
            self.eventually(lambda: name in admin.list_topics(timeout=ADMIN_SECONDS_MAX).topics)
            with wire.Connection(self.address) as peer:
                self.eventually(lambda: all(wire.is_led(peer, name, number) for number in range(partitions)))

    def topics(self) -> set[str]:
        admin = AdminClient({**logins.librdkafka(self.node.bootstrap), "log_level": 2})
        return set(admin.list_topics(timeout=ADMIN_SECONDS_MAX).topics)

    def eventually(self, check: Callable[[], bool]) -> None:
        """Assert `check`: at once on Odradek, whose answers mean "done"; Kafka's metadata follows a little later."""
        if self.kind == "odradek":
            assert check()
        else:
            eventually(check)

    def memory_bytes(self) -> int:
        return int(psutil.Process(self.node.pid).memory_info().rss)

    def peak_memory_bytes(self) -> int:
        """The largest resident size that the process had since `forget_peak_memory`."""
        return peak_memory_bytes(self.node.pid)

    def forget_peak_memory(self) -> None:
        Path(f"/proc/{self.node.pid}/clear_refs").write_text("5", encoding="ascii")

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.node.pid).cpu_times()
        return float(times.user + times.system)

    def log_text(self) -> str:
        return self.node.log_file.read_text(encoding="utf-8", errors="replace")

    def assert_one_log_line(self, peer: str) -> None:
        """Assert that the broker logged exactly one event about the connection `peer` (`host:port`).

        A wait serves faults that the broker finds after the test is done with its socket. Kafka's logs are its own.
        """
        if self.kind == "kafka":
            return
        lines = eventually(lambda: self._lines_about(peer), seconds=LOG_SECONDS_MAX)
        assert len(lines) == 1, lines
        assert "Traceback" not in self.log_text()

    def assert_no_log_line(self, peer: str) -> None:
        """Assert that the broker had nothing to say about the connection `peer`."""
        assert self.kind == "kafka" or self._lines_about(peer) == []

    def _lines_about(self, peer: str) -> list[str]:
        """Since the test began: an earlier one may have had a connection from the same port."""
        lines = self.log_text()[self.log_mark :].splitlines()
        return [line for line in lines if re.search(rf"\b{re.escape(peer)}\b", line)]
