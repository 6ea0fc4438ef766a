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
API_VERSIONS = 18
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


@pytest.fixture
def two_clusters(
    make_node: MakeNode, server_kind: str, lock: Lock | None, tmp_path: Path
) -> Iterator[tuple[Proxy, list[Node]]]:
    """Two clusters of one broker each, which both advertise the address of the proxy; the first one is behind it."""
    if server_kind != "odradek":
        pytest.skip("the test needs brokers that advertise one address")
    if lock is not None:
        pytest.skip("logins have nothing to do with which cluster answers")
    with Proxy() as proxy, ExitStack() as running:
        nodes = []
        for name in ("first", "second"):
            settings = {**_QUICK, "advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}
            node = make_node(settings=settings, directory=tmp_path / name, port=free_port()).start()
            running.callback(node.stop)
            nodes.append(node)
            target(proxy, node)
            with Admin(proxy.bootstrap) as admin:
                admin.create_topics([NewTopic("t", 1, 1)])
        target(proxy, nodes[0])
        yield proxy, nodes


def target(proxy: Proxy, node: Node) -> None:
    host, port = node.bootstrap.rsplit(":", 1)
    proxy.target = host, int(port)


def test_another_cluster_at_the_address_of_a_broker_is_noticed_and_its_topics_are_its_own(
    two_clusters: tuple[Proxy, list[Node]],
) -> None:
    """A connection that is routed to another cluster (KIP-1242): no offset of the first cluster counts in the second."""
    proxy, (first, second) = two_clusters
    login = logins.ours(proxy.bootstrap)
    with (
        Producer(**login) as producer,
        Consumer(**login, group_id="g", auto_offset_reset="earliest") as consumer,
        Admin(**login) as admin,
    ):
        consumer.subscribe(["t"])
        for number in range(3):
            producer.send("t", b"%d" % number).result(SECONDS)
        assert until(lambda: consumer.poll(0.2), 3) == [b"0", b"1", b"2"]
        before = admin.describe_cluster().cluster_id
        assert before is not None
        proxy.recorded.clear()
        target(proxy, second)
        first.stop()
        assert producer.send("t", b"other").result(SECONDS).offset == 0
        assert until(lambda: consumer.poll(0.2), 1) == [b"other"]
        assert admin.describe_cluster().cluster_id != before
    greetings = [request for request in list(proxy.recorded) if request.api_key == API_VERSIONS]
    assert any(before.encode() in request.frame for request in greetings), (
        "no client named the cluster it meant"
    )
