"""A broker with few file descriptors: strangers cannot take what its logs and its registry need."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.odradek_node import OdradekNode
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop import wire
from tests.kit.wire import parse_address

pytestmark = pytest.mark.interop

LIMIT = 256
CROWD = 400
TOPICS = 400


class Limited:
    """A broker under a limit of open files, soft and hard; it can be started again on the same data and port."""

    def __init__(
        self, directory: Path, *, hard_limit: int = LIMIT, settings: dict[str, str] | None = None
    ) -> None:
        prefix = ("prlimit", f"--nofile={LIMIT}:{hard_limit}")
        self.node = OdradekNode(directory=directory, prefix=prefix, settings=settings)
        self.log_file = self.node.log_file

    @contextlib.contextmanager
    def running(self) -> Iterator[int]:
        """Yields the process id. The broker ends cleanly, unless the test fails."""
        self.node.start()
        try:
            yield self.node.pid
            assert self.node.terminate() == 0, self.log_file.read_text()[-2000:]
        finally:
            self.node.stop()

    @property
    def address(self) -> tuple[str, int]:
        return parse_address(self.bootstrap)

    @property
    def bootstrap(self) -> str:
        return self.node.bootstrap


@pytest.fixture
def limited(tmp_path: Path) -> Limited:
    return Limited(tmp_path)


@pytest.fixture
def crowd() -> Iterator[list[socket.socket]]:
    """Sockets, and room for them in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    sockets: list[socket.socket] = []
    yield sockets
    for connection in sockets:
        connection.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptor_count(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def create(bootstrap: str, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(name, 1, 1) for name in names], operation_timeout=60)
    for outcome in made.values():
        outcome.result(60)


def produce(bootstrap: str, names: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "delivery.timeout.ms": 60_000})
    failed: list[str] = []
    for name in names:
        producer.produce(
            name, b"x", on_delivery=lambda error, _: failed.append(str(error)) if error else None
        )
    assert producer.flush(60) == 0
    assert failed == []


def test_the_soft_limit_is_raised_to_the_hard_one(tmp_path: Path, crowd: list[socket.socket]) -> None:
    limited = Limited(tmp_path, hard_limit=4 * LIMIT)
    with limited.running() as pid:
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (4 * LIMIT, 4 * LIMIT)
        crowd.extend(  # more than the soft limit had room for
            socket.create_connection(limited.address, timeout=30) for _ in range(CROWD)
        )
        with wire.Connection(limited.address) as late:
            late.call(wire.API_VERSIONS, 0, b"")


def test_a_crowd_of_connections_leaves_the_logs_and_the_registry_theirs(
    limited: Limited, crowd: list[socket.socket]
) -> None:
    with limited.running() as pid:
        with wire.Connection(limited.address) as early:
            early.call(wire.API_VERSIONS, 0, b"")
            for _ in range(CROWD):
                connection = socket.create_connection(limited.address, timeout=30)
                crowd.append(connection)
            crowd[-1].settimeout(30)
            assert crowd[-1].recv(1) == b"", "what there is no room for is closed at once"
            assert descriptor_count(pid) < LIMIT * 3 // 4
            early.call(wire.API_VERSIONS, 0, b"")
        for connection in crowd:
            connection.close()
        create(limited.bootstrap, ["later"])
        produce(limited.bootstrap, ["later"])
    log = limited.log_file.read_text()
    assert "Traceback" not in log
    assert len(log) < 100_000


def test_more_partitions_than_descriptors_are_made_written_and_opened_again(limited: Limited) -> None:
    names = [f"t{number}" for number in range(TOPICS)]
    with limited.running() as pid:
        create(limited.bootstrap, ["older"])
        create(limited.bootstrap, names)
        produce(limited.bootstrap, ["older", *names])
        assert descriptor_count(pid) < LIMIT
    with limited.running():
        produce(limited.bootstrap, ["older", *names])
        with wire.Connection(limited.address) as peer:
            assert wire.fetch(peer, "older", 0).high_watermark == 2
            assert wire.fetch(peer, names[-1], 0).high_watermark == 2
    assert "offline" not in limited.log_file.read_text()


def test_partitions_that_could_not_be_opened_are_refused_and_the_answer_says_why(limited: Limited) -> None:
    with limited.running():
        admin = AdminClient({"bootstrap.servers": limited.bootstrap, "log_level": 0})
        asked = admin.create_topics([NewTopic("vast", 2000, 1)], operation_timeout=60)["vast"]
        with pytest.raises(Exception, match=r"POLICY_VIOLATION.*limit of open files \(256 each\)"):
            asked.result(60)
        create(limited.bootstrap, ["small"])


def test_descriptors_that_connections_may_not_take_make_room_for_partitions(tmp_path: Path) -> None:
    limited = Limited(tmp_path, settings={"max.connections": "8"})
    with limited.running():
        admin = AdminClient({"bootstrap.servers": limited.bootstrap, "log_level": 0})
        asked = admin.create_topics([NewTopic("wide", 640, 1)], operation_timeout=60)["wide"]
        asked.result(60)  # refused by default: half of the descriptors would be for connections
        assert len(admin.list_topics("wide", timeout=30).topics["wide"].partitions) == 640
    assert "offline" not in limited.log_file.read_text()


def test_connections_are_refused_and_accepted_again_when_even_the_shares_are_too_large(
    limited: Limited, crowd: list[socket.socket]
) -> None:
    with limited.running() as pid, wire.Connection(limited.address) as early:
        early.call(wire.API_VERSIONS, 0, b"")
        in_use = descriptor_count(pid)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use + 10, LIMIT))
        crowd += [socket.create_connection(limited.address, timeout=30) for _ in range(60)]
        crowd[-1].settimeout(30)
        assert crowd[-1].recv(1) == b""
        for _ in range(20):
            early.call(wire.API_VERSIONS, 0, b"")
        for connection in crowd:
            connection.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        with wire.Connection(limited.address) as later:
            later.call(wire.API_VERSIONS, 0, b"")
    log = limited.log_file.read_text()
    assert "Traceback" not in log
    assert len(log) < 50_000
