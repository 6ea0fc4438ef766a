"""A cluster that is at other addresses behind the same bootstrap name: clients find it again, or fail if they are to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from benchmarks.odradek_node import Node
from benchmarks.peer import PeerAbsentError, free_port
from tests.interop import logins
from tests.interop.logins import Lock
from tests.interop.proxy import Proxy

from odradek import (
    Admin,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    ShareConsumer,
)
from odradek.client import ResourceType

SECONDS = 60.0
MakeNode = Callable[..., Node]
_QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "2",
}


class MovingCluster:
    """A broker whose address changes, and a proxy whose address does not: the clients' bootstrap name."""

    def __init__(self, make_node: MakeNode, directory: Path, proxy: Proxy) -> None:
        self._make_node, self._directory, self._proxy = make_node, directory, proxy
        self.node = self._started()

    @property
    def bootstrap(self) -> str:
        return self._proxy.bootstrap

    def move(self) -> None:
        before = self.node.bootstrap
        assert self.node.terminate() == 0
        self.node.stop()
        self.node = self._started()
        assert self.node.bootstrap != before

    def _started(self) -> Node:
        node = self._make_node(settings=_QUICK, directory=self._directory, port=free_port()).start()
        host, port = node.bootstrap.rsplit(":", 1)
        self._proxy.target = host, int(port)
        return node


@pytest.fixture
def cluster(
    make_node: MakeNode, server_kind: str, lock: Lock | None, tmp_path: Path
) -> Iterator[MovingCluster]:
    if server_kind != "odradek":
        pytest.skip("the test moves a broker with its data")
    if lock is not None:
        pytest.skip("logins have nothing to do with where a broker is")
    with Proxy() as proxy:
        try:
            moving = MovingCluster(make_node, tmp_path / "node", proxy)
        except PeerAbsentError as reason:
            pytest.skip(f"absent: {reason}")
        try:
            with Admin(**logins.ours(moving.node.bootstrap)) as admin:
                admin.create_topics([NewTopic("t", 1, 1)])
                group = ConfigResource(ResourceType.GROUP, "s")
                admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
            yield moving
        finally:
            moving.node.stop()


def until(read: Callable[[], Any], count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} came"
        values += [record.value or b"" for record in read()]
    return values


@pytest.mark.parametrize("protocol", ["auto", "classic"])
def test_every_client_finds_a_cluster_that_has_moved(cluster: MovingCluster, protocol: Any) -> None:
    login = logins.ours(cluster.bootstrap)
    with (
        Producer(**login) as producer,
        Consumer(**login, group_id="g", auto_offset_reset="earliest", group_protocol=protocol) as consumer,
        ShareConsumer(**login, group_id="s") as sharing,
        Admin(**login) as admin,
    ):
        consumer.subscribe(["t"])
        sharing.subscribe(["t"])
        for round_number in range(2):
            producer.send("t", b"%d" % round_number).result(SECONDS)
            assert until(lambda: consumer.poll(0.2), 1) == [b"%d" % round_number]
            assert until(lambda: sharing.poll(0.2), 1) == [b"%d" % round_number]
            sharing.commit()
            consumer.commit()
            assert set(admin.describe_topics(["t"])) == {"t"}
            if round_number == 0:
                cluster.move()


def test_without_recovery_clients_fail_and_say_why(cluster: MovingCluster) -> None:
    options: dict[str, Any] = {**logins.ours(cluster.bootstrap), "metadata_recovery_strategy": "none"}
    with ExitStack() as clients:
        producer = clients.enter_context(
            Producer(**options, delivery_timeout_ms=3_000, request_timeout_ms=1_000)
        )
        admin = clients.enter_context(Admin(**options))
        producer.send("t", b"0").result(SECONDS)
        assert set(admin.describe_topics(["t"])) == {"t"}
        cluster.move()
        words = r"metadata\.recovery\.strategy=none: bootstrap\.servers is not asked again"
        with pytest.raises(KafkaError, match=words):
            admin.describe_cluster(timeout_s=3)
        with pytest.raises(KafkaError):
            producer.send("t", b"1").result(SECONDS)
