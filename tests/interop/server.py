"""The server under test as the tests see it: its kind, its process, its log, and topics made for a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import psutil
from benchmarks.odradek_node import Node
from confluent_kafka.admin import AdminClient, NewTopic

ADMIN_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    kind: Literal["odradek", "kafka"]
    node: Node

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.node.bootstrap.rsplit(":", 1)
        return host, int(port)

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self.node.bootstrap, "log_level": 2})
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
        admin.create_topics([new], operation_timeout=ADMIN_SECONDS_MAX)[name].result(ADMIN_SECONDS_MAX)
        self.eventually(lambda: name in admin.list_topics(timeout=ADMIN_SECONDS_MAX).topics)

    def eventually(self, check: Callable[[], bool]) -> None:
        """Assert `check`: at once on Odradek, whose answers mean "done"; Kafka's metadata follows a little later."""
        for _ in range(1 if self.kind == "odradek" else 200):
            if check():
                return
            time.sleep(0.02)
        raise AssertionError("it did not come true")

    def memory_bytes(self) -> int:
        return int(psutil.Process(self.node.pid).memory_info().rss)

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.node.pid).cpu_times()
        return float(times.user + times.system)

    def log_text(self) -> str:
        return self.node.log_file.read_text(encoding="utf-8", errors="replace")
