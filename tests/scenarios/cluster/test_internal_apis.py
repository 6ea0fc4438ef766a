"""What brokers say to each other, said by anyone: each request is answered with a code, and breaks nothing."""

import logging
import struct
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from tests.kit.wire import Wire, request_frame

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.cluster.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.messages.cluster.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.cluster.cluster_sync import ClusterSyncRequest
from odradek.protocol.messages.cluster.describe_quorum import DescribeQuorumRequest
from odradek.protocol.messages.cluster.forward import ForwardRequest
from odradek.protocol.messages.cluster.identify_broker import IdentifyBrokerRequest
from odradek.protocol.messages.data.fetch import FetchRequest, ReplicaState
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.share.read_share_group_state import ReadShareGroupStateRequest
from odradek.security.principals import Requester

STALE = 3


@pytest.fixture
async def hostile(scene: Any, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Any]:
    """A connection; afterwards the broker must be well, and have logged no traceback."""
    await scene.start()
    wire = await scene.connect()
    yield wire
    other = await scene.connect()
    assert (await other.create("after")).error_code == ErrorCode.NONE
    assert (await other.produce("after", [b"x"])).error_code == ErrorCode.NONE
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


def own_epoch(scene: Any) -> int:
    return int(scene.broker.context.cluster.broker_epoch)


async def test_a_process_says_which_broker_it_is(hostile: Any, scene: Any) -> None:
    response = await hostile.ask(IdentifyBrokerRequest(broker_id=77), 0)
    assert (response.error_code, response.broker_id) == (ErrorCode.NONE, 1)
    assert response.incarnation == scene.broker.context.cluster.incarnation


@pytest.mark.parametrize(
    ("broker", "epoch", "code"),
    [
        (1, STALE + 10**6, ErrorCode.STALE_BROKER_EPOCH),
        (1, -1, ErrorCode.STALE_BROKER_EPOCH),
        (77, 5, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (-1, -1, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
@pytest.mark.parametrize("controller_epoch", [-1, 10**6])
async def test_a_report_of_no_broker_that_is_there(
    hostile: Any, broker: int, epoch: int, code: ErrorCode, controller_epoch: int
) -> None:
    request = ClusterSyncRequest(
        broker_id=broker, broker_epoch=epoch, controller_epoch=controller_epoch, version=5, max_wait_ms=0
    )
    assert (await hostile.ask(request, 0)).error_code == code


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"damaged": 5}',
        b'{"damaged": [[1, 2]]}',
        b'{"damaged": [["00000000-0000-0000-0000-000000000001", 1e999]]}',
        b'{"offline": [["x"]]}',
        b"[" * 200_000,
    ],
)
async def test_a_report_that_does_not_read(hostile: Any, scene: Any, payload: bytes) -> None:
    request = ClusterSyncRequest(
        broker_id=1,
        broker_epoch=own_epoch(scene),
        controller_epoch=-1,
        version=-1,
        max_wait_ms=0,
        payload=payload,
    )
    assert (await hostile.ask(request, 0)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_report_of_a_broker_by_someone_else_deposes_no_one(hostile: Any, scene: Any) -> None:
    request = ClusterSyncRequest(
        broker_id=1, broker_epoch=own_epoch(scene), controller_epoch=10**6, version=5, max_wait_ms=0
    )
    assert (await hostile.ask(request, 0)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("broker", "epoch", "code"),
    [(1, STALE + 10**6, ErrorCode.STALE_BROKER_EPOCH), (77, 5, ErrorCode.BROKER_ID_NOT_REGISTERED)],
)
async def test_producer_ids_for_no_broker_that_is_there(
    hostile: Any, broker: int, epoch: int, code: ErrorCode
) -> None:
    request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
    assert (await hostile.ask(request, 0)).error_code == code


@pytest.mark.parametrize(
    ("partition", "isr", "code"),
    [
        (0, [], ErrorCode.INVALID_REQUEST),
        (0, [1, 1], ErrorCode.INVALID_REQUEST),
        (0, [77], ErrorCode.INVALID_REQUEST),
        (-1, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (9, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_an_isr_that_cannot_be(
    hostile: Any, scene: Any, partition: int, isr: list[int], code: ErrorCode
) -> None:
    topic_id = (await hostile.create("t")).topic_id
    state = scene.broker.context.image.topics["t"].partitions[0]
    data = PartitionData(
        partition_index=partition,
        leader_epoch=state.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=member, broker_epoch=1) for member in isr],
        partition_epoch=state.partition_epoch,
    )
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=own_epoch(scene),
        topics=[TopicData(topic_id=topic_id, partitions=[data])],
    )
    response = await hostile.ask(request, 3)
    assert response.topics[0].partitions[0].error_code == code


async def test_an_isr_of_a_topic_that_is_not(hostile: Any, scene: Any) -> None:
    data = PartitionData(partition_index=0, leader_epoch=0, new_isr_with_epochs=[], partition_epoch=0)
    topics = [TopicData(topic_id=UUID(int=5), partitions=[data])]
    request = AlterPartitionRequest(broker_id=1, broker_epoch=own_epoch(scene), topics=topics)
    response = await hostile.ask(request, 3)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def frame(key: int, version: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", key, version, 7, -1) + body


@pytest.mark.parametrize(
    "inner",
    [
        b"",
        b"\x00",
        frame(19, 2),
        frame(19, 2, b"\xff" * 50),
        frame(20, 1, b"\x7f\xff\xff\xff"),
        frame(999, 0),
        frame(0, 9),
        frame(10001, 0),
    ],
)
async def test_a_forwarded_request_that_is_none(hostile: Any, inner: bytes) -> None:
    request = ForwardRequest(request_data=inner, principal="User:x", client_host="h")
    assert (await hostile.ask(request, 0)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_forwarded_request_of_a_version_of_the_future(hostile: Any) -> None:
    request = ForwardRequest(request_data=frame(19, 99, b"\x00"), principal="User:x", client_host="h")
    assert (await hostile.ask(request, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_forwarded_request_that_brokers_serve_themselves(hostile: Any) -> None:
    inner = request_frame(ApiVersionsRequest(), 0)[4:]
    request = ForwardRequest(request_data=inner, principal="User:x", client_host="h")
    assert (await hostile.ask(request, 0)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_forwarded_request_may_do_nothing_that_its_forwarder_may_not(
    hostile: Any, scene: Any
) -> None:
    """Whom it names as the asker is hearsay: the request within is served as one of the connection that it came over."""
    served: list[Any] = []
    broker = scene.broker.context
    serve = broker.serve

    def watched(connection: Any, inner: memoryview, requester: Any) -> Any:
        served.append(requester or connection.requester)
        return serve(connection, inner, requester)

    broker.serve = watched
    inner = request_frame(DescribeQuorumRequest(), 0)[4:]
    request = ForwardRequest(request_data=inner, principal="User:admin", client_host="10.9.9.9")
    assert (await hostile.ask(request, 0)).error_code == 0
    assert served == [Requester(host="127.0.0.1")]


@pytest.fixture
async def two_listeners(scene: Any) -> list[Wire]:
    """Connections to the listener of clients, and to that of brokers."""
    listeners = "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0"
    broker = await scene.start(
        listeners=listeners,
        listener_security_protocol_map="CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        inter_broker_listener_name="BROKERS",
    )
    return [await scene.connect(port) for _, port in broker.addresses]


@pytest.mark.parametrize(
    ("request_of_a_broker", "version", "otherwise"),
    [
        (ClusterSyncRequest(broker_id=77), 0, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (AllocateProducerIdsRequest(broker_id=77), 0, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (AlterPartitionRequest(broker_id=77), 3, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ForwardRequest(principal="User:x", client_host="h"), 0, ErrorCode.INVALID_REQUEST),
        (FetchRequest(replica_state=ReplicaState(replica_id=2, replica_epoch=1)), 17, None),
    ],
)
async def test_what_only_brokers_may_ask_is_served_at_their_listener_alone(
    two_listeners: list[Wire], request_of_a_broker: Any, version: int, otherwise: ErrorCode | None
) -> None:
    clients, brokers = two_listeners
    refused = await clients.ask(request_of_a_broker, version)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    heard = await brokers.ask(request_of_a_broker, version)
    assert heard.error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert otherwise is None or heard.error_code == otherwise


async def test_state_of_share_groups_is_between_brokers_too(two_listeners: list[Wire]) -> None:
    """Its answers have no place for such an error: the connection ends."""
    clients, brokers = two_listeners
    request = ReadShareGroupStateRequest(group_id="g")
    clients.ask_later(request, 0)
    assert await clients.closed_by_broker()
    await brokers.ask(request, 0)


async def test_clients_are_served_at_every_listener_and_other_brokers_hear_of_theirs(
    scene: Any, two_listeners: Any
) -> None:
    clients, brokers = two_listeners
    assert (await clients.create("t")).error_code == 0
    for wire in (clients, brokers):
        assert (await wire.produce("t", [b"x"])).error_code == 0
        assert (await wire.fetch("t", 0)).error_code == 0
    (me,) = scene.broker.context.image.brokers
    assert (me.host, me.port) == scene.broker.addresses[1]
