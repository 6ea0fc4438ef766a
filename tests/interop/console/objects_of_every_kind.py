"""A cluster with one object of each kind that the console has a page for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.kit.requests import produce_request
from tests.kit.wire import BlockingWire, parse_address

from odradek.client import (
    Acl,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResourceType,
    Admin,
    NewPassword,
    NewTopic,
    Producer,
    QuotaEntity,
)
from odradek.dead_letters import headers
from odradek.model.ids import TopicPartition
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.outline import OutputOutline, ProgramKind, ProgramOutline, SourceOutline, StateOutline
from odradek.pipelines.status import STATUS_TOPIC, Phase, PipelineStatus, RunFailure
from odradek.pipelines.store import PipelineStore
from odradek.protocol.messages.groups.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from odradek.records.builder import BatchBuilder
from odradek.sql.rest_client import RestClient
from odradek.testing import LocalBroker

DEAD: Final = "orders.dlq"
GROUP: Final = "billing"
HELD_GROUP: Final = "held-by-a-transaction"
SHARE_GROUP: Final = "mailers"
STREAMS_GROUP: Final = "counting"
MADE: Final = """
CREATE STREAM orders (customer STRING KEY, item STRING, amount DOUBLE)
    WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE users (id STRING PRIMARY KEY, city STRING)
    WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON', PARTITIONS=1);
"""
_OUTLINE: Final = ProgramOutline(
    kind=ProgramKind.STREAMS,
    app="totals",
    outputs=(
        OutputOutline(
            name="out",
            topic="users",
            is_topic=True,
            sources=(SourceOutline(name="orders", topic="orders"),),
            states=(StateOutline(name="by-customer", kind="aggregate", shape="x"),),
            sources_named=True,
        ),
    ),
)


@contextmanager
def objects_of_every_kind(broker: LocalBroker, sql: RestClient) -> Iterator[None]:
    """Makes them. A transaction stays open until the end."""
    sql.execute(MADE)
    with (
        Admin(broker.address) as admin,
        Producer(broker.address) as producer,
        Producer(broker.address, transactional_id="payments") as open_producer,
    ):
        admin.create_topics([NewTopic("flights", 3), NewTopic(DEAD, 1), NewTopic("held", 1)])
        _people(admin)
        for number in range(30):
            producer.send("flights", b'{"to": "RIX"}', key=b"TK%d" % number, partition=number % 3)
        letter = {
            headers.TOPIC: "orders",
            headers.PARTITION: "0",
            headers.OFFSET: "0",
            headers.EXCEPTION: "KeyError",
            headers.MESSAGE: "'amount'",
            headers.STACKTRACE: "first line\nsecond line",
            headers.GROUP: GROUP,
        }
        producer.send(DEAD, b"{}", headers=[(name, value.encode()) for name, value in letter.items()])
        producer.flush()
        open_producer.init_transactions()
        open_producer.begin_transaction()
        open_producer.send("held", b"x", partition=0)
        open_producer.flush()
        begin_hanging(broker.address, "held", 0)
        admin.alter_group_offsets(GROUP, {TopicPartition("flights", 0): 2, TopicPartition("flights", 1): 0})
        admin.alter_group_offsets(HELD_GROUP, {TopicPartition("held", 0): 0})
        admin.alter_share_group_offsets(SHARE_GROUP, {TopicPartition("flights", 2): 1})
        _streams_member(broker.address)
        failing_pipeline(broker.address)
        yield
        open_producer.abort_transaction()


def _people(admin: Admin) -> None:
    admin.alter_users({"ann": NewPassword(password="a password of ann", iterations=4096)})
    pattern = AclPattern(AclResourceType.TOPIC, "flights")
    admin.create_acls([Acl(pattern, "User:ann", "*", AclOperation.READ, AclPermission.ALLOW)])
    admin.alter_quotas({QuotaEntity(user="ann"): {"producer_byte_rate": 1e6}})


def _streams_member(address: str) -> None:
    """Joins a streams group as a member of Kafka Streams does (KIP-1071); its session lasts longer than the tests."""
    request = StreamsGroupHeartbeatRequest(
        group_id=STREAMS_GROUP,
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        process_id="here",
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        topology=Topology(
            epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=["flights"])]
        ),
    )
    with BlockingWire(parse_address(address), client_id="every-page") as wire:
        response = wire.ask(request, 0)
    assert response.error_code == 0, response


def begin_hanging(address: str, topic: str, partition: int, producer_id: int = 987_654) -> None:
    """Writes a record of a transaction that no coordinator knows. The broker must not verify partitions (KIP-890)."""
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, b"half of a transfer")
    batch = builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    with BlockingWire(parse_address(address)) as wire:
        response = wire.ask(produce_request(topic, batch, partition=partition, transactional_id="lost"), 11)
    assert response.responses[0].partition_responses[0].error_code == 0, response


def failing_pipeline(address: str, read_offset: int = 0) -> None:
    """Writes a pipeline that fails, as its supervisor would. `read_offset`: how far it has read the topic `orders`."""
    version = PipelineVersion(number=1, program="/srv/totals.py", checkpoint="totals/v1")
    with PipelineStore(address) as store:
        document = PipelineDocument(name="totals", versions=(version,)).changed(1_000, "ann", "run")
        store.change("totals", lambda _: document)
    reported = PipelineStatus(
        name="totals",
        phase=Phase.BACKING_OFF,
        revision=1,
        version=1,
        since_ms=1_000,
        supervisor="host",
        failure=RunFailure(line="ValueError: 'x' is no number", at_ms=1_000),
        failures_in_a_row=2,
        inputs={"orders": {0: read_offset}},
        outline=_OUTLINE,
        log=("one line", "another"),
    )
    with Producer(address) as producer:
        producer.send(STATUS_TOPIC, reported.to_bytes(), key=b"totals", partition=0)
