"""What brokers ask of the controller has a listener of its own (`control.plane.listener.name`, KIP-291)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.kit.requests import fetch_request, produce_request
from tests.kit.waiting import until
from tests.kit.wire import Wire
from tests.scenarios.one_broker import Scene
from tests.security.conftest import Pems, log_in

from odradek.broker.requests.dispatch import Dispatcher
from odradek.model.errors import ErrorCode
from odradek.net.connection import Connection
from odradek.protocol import APIS, decode_request_header
from odradek.protocol.messages.cluster.cluster_sync import ClusterSyncRequest
from odradek.protocol.messages.cluster.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from odradek.protocol.messages.cluster.identify_broker import IdentifyBrokerRequest
from odradek.protocol.messages.metadata.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.protocol.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.topics.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.security.authorizer import STANDARD_AUTHORIZER
from odradek.security.sasl.scram import ScramClient

SCRAM: Final = "SCRAM-SHA-512"
MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OF_THE_CONTROLLER: Final = {"ClusterSync", "Forward", "AlterPartition", "AllocateProducerIds"}
CLIENTS, BROKERS, CONTROL = "CLIENTS", "BROKERS", "CONTROL"
SECONDS: Final = 20


class ControlPlanes:
    """Two brokers: certificates between them, SCRAM at the control plane, plain text for clients. `asked`: what was asked."""

    def __init__(self, directory: Path, pems: Pems, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._pems = pems
        self._scenes: dict[int, Scene] = {}
        self.asked: dict[tuple[int, str], set[tuple[str, str]]] = defaultdict(set)
        handle = Dispatcher.handle

        def watched(dispatcher: Dispatcher, connection: Connection, frame: memoryview) -> Any:
            header, _ = decode_request_header(frame)
            where = connection.listener.broker_id, connection.listener.name
            self.asked[where].add((APIS[header.api_key].name, connection.requester.principal))
            return handle(dispatcher, connection, frame)

        monkeypatch.setattr(Dispatcher, "handle", watched)

    async def start(self, node: int, *, has_control_plane: bool = True) -> Any:
        names = [CLIENTS, BROKERS, *([CONTROL] if has_control_plane else [])]
        settings = {
            "node.id": str(node),
            "odradek.registry.dir": str(self._directory / "registry"),
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SSL,CONTROL:SASL_PLAINTEXT",
            "inter.broker.listener.name": BROKERS,
            "ssl.keystore.location": self._pems.broker,
            "ssl.truststore.location": self._pems.ca,
            "ssl.client.auth": "required",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS;User:CN=broker;User:control",
            "connection.failed.authentication.delay.ms": "1",
            "broker.session.timeout.ms": "2000",
        }
        if has_control_plane:
            settings |= {
                "control.plane.listener.name": CONTROL,
                "listener.name.control.sasl.enabled.mechanisms": SCRAM,
                "listener.name.control.sasl.jaas.config": f'{MODULE} required username="control" password="secret";',
            }
        settings["odradek.scram.first.users"] = ";".join(
            f"{SCRAM}=[name={name},password=secret]" for name in ("control", "alice")
        )
        scene = self._scenes[node] = Scene(self._directory / str(node))
        return await scene.start(**settings)

    async def stop(self, node: int) -> None:
        await self._scenes.pop(node).stop()

    async def close(self) -> None:
        for node in sorted(self._scenes, reverse=True):
            await self.stop(node)

    def broker(self, node: int) -> Any:
        return self._scenes[node].broker

    async def wire(self, node: int, listener: str = CLIENTS) -> Wire:
        port = self.broker(node).addresses[[CLIENTS, BROKERS, CONTROL].index(listener)][1]
        return await self._scenes[node].connect(port)

    async def alice(self, node: int) -> Wire:
        wire = await self.wire(node, CONTROL)
        assert (await log_in(wire, ScramClient(SCRAM, "alice", "secret", "nonce"), SCRAM)).error_code == 0
        return wire

    def apis(self, node: int, listener: str) -> set[str]:
        """Returns the APIs that were asked there since the last `forget`."""
        return {api for api, _ in self.asked[node, listener]}

    def forget(self) -> None:
        self.asked.clear()

    async def until_in_sync(self, topic: str, replicas: list[int]) -> None:
        def in_sync() -> bool:
            known = self.broker(1).context.image.topics.get(topic)
            return known is not None and sorted(known.partitions[0].isr) == replicas

        await until(in_sync)


@pytest.fixture
async def planes(tmp_path: Path, pems: Pems, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ControlPlanes]:
    made = ControlPlanes(tmp_path, pems, monkeypatch)
    try:
        yield made
    finally:
        await made.close()


async def create(wire: Wire, topic: str, replicas: list[int]) -> None:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=SECONDS * 1000)
    assert (await wire.ask(request, 7)).topics[0].error_code == 0


async def all_that_brokers_ask(planes: ControlPlanes) -> None:
    """Broker 1 is the controller. Broker 2 passes a request on, needs producer ids, leads, and takes broker 1 into an ISR."""
    wire = await planes.wire(2)
    await create(wire, "moves", [2])
    assert (await wire.produce("moves", [b"x"])).error_code == 0
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    await until(lambda: wire.ask(request, 4), holds=lambda response: not response.error_code)
    partition = ReassignablePartition(partition_index=0, replicas=[2, 1])
    topics = [ReassignableTopic(name="moves", partitions=[partition])]
    moved = await wire.ask(AlterPartitionReassignmentsRequest(topics=topics), 0)
    assert moved.responses[0].partitions[0].error_code == 0
    await planes.until_in_sync("moves", [1, 2])
    assert (await wire.produce("moves", [b"y"])).error_code == 0


@pytest.mark.check(39)
async def test_the_controller_is_asked_at_its_control_plane_and_replication_stays_where_it_was(
    planes: ControlPlanes,
) -> None:
    await planes.start(1)
    await planes.start(2)
    await all_that_brokers_ask(planes)
    assert planes.asked[1, CONTROL] == {
        *((api, "User:control") for api in OF_THE_CONTROLLER),
        ("ApiVersions", "User:ANONYMOUS"),
    }
    assert ("Fetch", "User:CN=broker") in planes.asked[2, BROKERS]
    for node in (1, 2):
        assert not OF_THE_CONTROLLER & planes.apis(node, BROKERS)
        assert not OF_THE_CONTROLLER & planes.apis(node, CLIENTS)


@pytest.mark.check(39)
@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=None), 9),
        (produce_request("t", b""), 9),
        (fetch_request("t", 0), 11),
        (fetch_request("t", 0).replace(replica_id=2), 11),
        (IdentifyBrokerRequest(broker_id=1), 0),
        (DescribeQuorumRequest(), 1),
    ],
)
async def test_nothing_else_is_served_at_the_control_plane_not_even_to_a_broker(
    planes: ControlPlanes, request_: Any, version: int
) -> None:
    await planes.start(1)
    for user in ("alice", "control"):
        wire = await planes.wire(1, CONTROL)
        assert (await log_in(wire, ScramClient(SCRAM, user, "secret", "nonce"), SCRAM)).error_code == 0
        wire.ask_later(request_, version)
        assert await wire.closed_by_broker()


@pytest.mark.check(39)
async def test_who_may_not_act_as_a_broker_is_refused_at_the_control_plane(planes: ControlPlanes) -> None:
    broker = await planes.start(1)
    request = ClusterSyncRequest(broker_id=1, broker_epoch=broker.context.cluster.broker_epoch)
    wire = await planes.alice(1)
    refused = await wire.ask(request, 0)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    stranger = await planes.wire(1, CONTROL)  # without a login
    stranger.ask_later(request, 0)
    assert await stranger.closed_by_broker()


async def test_clients_hear_nothing_of_the_control_plane(planes: ControlPlanes) -> None:
    await planes.start(1)
    await planes.start(2)
    wire = await planes.wire(2)
    of_clients = {planes.broker(node).addresses[0][1] for node in (1, 2)}
    known = await wire.ask(MetadataRequest(topics=None), 9)
    assert {broker.port for broker in known.brokers} == of_clients
    described = await wire.ask(DescribeClusterRequest(), 0)
    assert {broker.port for broker in described.brokers} == of_clients
    topics = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    quorum = await wire.ask(DescribeQuorumRequest(topics=topics), 2)
    advertised = {(listener.name, listener.port) for node in quorum.nodes for listener in node.listeners}
    of_brokers = {(BROKERS, planes.broker(node).addresses[1][1]) for node in (1, 2)}
    assert advertised == of_brokers, "the controller answers broker 2, which passed it on"
    assert "Forward" in planes.apis(1, CONTROL)


async def test_brokers_get_a_control_plane_one_after_the_other(planes: ControlPlanes) -> None:
    await planes.start(1, has_control_plane=False)
    await planes.start(2)
    await all_that_brokers_ask(planes)
    assert planes.apis(1, BROKERS) >= OF_THE_CONTROLLER, "broker 1 has none yet"

    await planes.stop(1)
    await until(lambda: bool(planes.broker(2).context.cluster.leads))
    planes.forget()
    await planes.start(1, has_control_plane=False)
    await planes.until_in_sync("moves", [1, 2])
    assert "ClusterSync" in planes.apis(2, BROKERS), "broker 1 does not know how to log in at the other's"
    assert not planes.apis(2, CONTROL)

    await planes.stop(1)
    planes.forget()
    await planes.start(1)
    await planes.until_in_sync("moves", [1, 2])
    assert "ClusterSync" in planes.apis(2, CONTROL)
    assert not OF_THE_CONTROLLER & planes.apis(2, BROKERS)
    wire = await planes.wire(1)
    assert await wire.values("moves") == [b"x", b"y"]
