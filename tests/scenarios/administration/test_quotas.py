"""Quotas on a production broker: set over the wire, effective at once, and muting seen by the order of what happens."""

import asyncio
from typing import Any

import pytest
from tests.scenarios.groups.test_share_groups import ANNE, SETTINGS, Member, id_of, set_of_group

from odradek.cluster.image import NO_QUOTAS
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.protocol.messages.quotas import alter_client_quotas as alter
from odradek.protocol.messages.quotas import describe_client_quotas as describe
from odradek.protocol.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState

LITTLE = 1.0
"""A limit that any request exceeds for longer than a test lasts."""


def entry(entity: dict[str, str | None], **limits: float | None) -> Any:
    return alter.EntryData(
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()
        ],
    )


async def set_quota(wire: Any, entity: dict[str, str | None], **limits: float | None) -> None:
    request = alter.AlterClientQuotasRequest(entries=[entry(entity, **limits)])
    response = await wire.ask(request, 1)
    assert [quota_entry.error_code for quota_entry in response.entries] == [0], response


async def described(wire: Any, *components: Any, strict: bool = False) -> Any:
    request = describe.DescribeClientQuotasRequest(
        components=[
            describe.ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        ],
        strict=strict,
    )
    return await wire.ask(request, 1)


ANONYMOUS = {"user": "ANONYMOUS"}
TEST_CLIENT = {"client-id": "test"}


async def test_quotas_are_kept_described_and_survive_a_restart(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    await set_quota(wire, {"user": "u", "client-id": None}, producer_byte_rate=10.0, consumer_byte_rate=20.0)
    await set_quota(wire, {"user": "u", "client-id": None}, consumer_byte_rate=None)
    await set_quota(wire, {"ip": "1.2.3.4"}, connection_creation_rate=5.0)
    await scene.stop()
    await scene.start()
    wire = await scene.connect()
    description = await described(wire, ("user", 0, "u"))
    assert [
        (
            {part.entity_type: part.entity_name for part in quota_entry.entity},
            {v.key: v.value for v in quota_entry.values},
        )
        for quota_entry in description.entries
    ] == [({"client-id": None, "user": "u"}, {"producer_byte_rate": 10.0})]
    assert len((await described(wire)).entries) == 2
    assert not (await described(wire, ("user", 0, "u"), strict=True)).entries


async def test_each_entry_succeeds_or_fails_by_itself_and_nothing_changes_when_only_validated(
    wire: Any,
) -> None:
    entries = [
        entry({"user": "a"}, producer_byte_rate=1.0),
        entry({"user": "twice"}, producer_byte_rate=1.0),
        entry({"user": "twice"}, producer_byte_rate=2.0),
        entry({"user": "b"}, producer_byte_rate=0.0),
        entry({"user": "c"}, nosuch=1.0),
        entry({}, producer_byte_rate=1.0),
    ]
    request = alter.AlterClientQuotasRequest(entries=entries, validate_only=True)
    for validate_only, count in ((True, 0), (False, 1)):
        response = await wire.ask(request.replace(validate_only=validate_only), 1)
        assert [quota_entry.error_code for quota_entry in response.entries] == [0, 42, 42, 42, 42]
        assert len((await described(wire)).entries) == count


async def test_a_bad_filter_is_refused(wire: Any) -> None:
    assert (await described(wire, ("user", 7, None))).error_code == 42
    response = await described(wire, ("colour", 2, None))
    assert (response.error_code, response.entries) == (35, None)


async def test_a_producer_over_its_quota_is_answered_and_then_muted(scene: Any, make_batch: Any) -> None:
    await scene.start()
    admin, wire = await scene.connect(), await scene.connect()
    await admin.create("t")
    await set_quota(admin, TEST_CLIENT, producer_byte_rate=LITTLE)
    first = await wire.produce("t", [b"x" * 100])
    assert first.error_code == 0, "the answer comes first"
    wire.ask_later(MetadataRequest(topics=None), 9)
    # Another connection is served while this one is not; the quota is gone then, but who is muted stays so.
    await set_quota(admin, TEST_CLIENT, producer_byte_rate=None)
    await admin.ask(MetadataRequest(topics=None), 9)
    assert await nothing_arrives(wire)
    assert (await admin.values("t")) == [b"x" * 100]


async def nothing_arrives(wire: Any) -> bool:
    """After what takes the broker several rounds of its loop, on which the answer would have been sent."""
    for _ in range(50):
        await asyncio.sleep(0)
    return not wire.has_arrived


async def test_the_answer_says_how_long_the_client_must_wait(
    wire: Any, make_batch: Any, make_produce: Any
) -> None:
    await wire.create("t")
    await set_quota(wire, TEST_CLIENT, producer_byte_rate=100.0)
    response = await wire.ask(make_produce("t", make_batch([b"x" * 2000])), 9)
    assert 10_000 < response.throttle_time_ms < 20_000


async def test_after_the_wait_the_connection_is_served_again(
    wire: Any, make_batch: Any, make_produce: Any
) -> None:
    await wire.create("t")
    await set_quota(wire, TEST_CLIENT, producer_byte_rate=20_000.0)
    large = make_produce("t", make_batch([b"x" * 201_000]))
    throttled = await wire.ask(large, 9)
    assert 0 < throttled.throttle_time_ms < 1000
    wire.ask_later(MetadataRequest(topics=None), 9)
    wire.ask_later(MetadataRequest(topics=None), 9)
    assert len((await wire.response()).topics) == 1
    assert len((await wire.response()).topics) == 1


@pytest.mark.parametrize(("topic", "acks"), [("missing", -1), ("t", 0)])
async def test_a_request_that_is_refused_or_unanswered_costs_the_same(
    scene: Any, make_batch: Any, make_produce: Any, topic: str, acks: int
) -> None:
    await scene.start(auto_create_topics_enable="false")
    admin, wire = await scene.connect(), await scene.connect()
    await admin.create("t")
    await set_quota(admin, TEST_CLIENT, producer_byte_rate=LITTLE)
    request = make_produce(topic, make_batch([b"x" * 100]), acks=acks)
    if acks:
        response = await wire.ask(request, 9)
        assert response.responses[0].partition_responses[0].error_code == 3
        assert response.throttle_time_ms > 0
    else:
        wire.ask_later(request, 9)
        wire.expect_no_response()
    wire.ask_later(MetadataRequest(topics=None), 9)
    await admin.ask(MetadataRequest(topics=None), 9)
    assert await nothing_arrives(wire)


async def test_a_consumer_over_its_quota_gets_what_was_found_and_is_then_muted(
    scene: Any, make_fetch: Any
) -> None:
    await scene.start()
    admin, wire = await scene.connect(), await scene.connect()
    await admin.create("t")
    await admin.produce("t", [b"x" * 5000])
    await set_quota(admin, TEST_CLIENT, consumer_byte_rate=100.0)
    response = await wire.ask(make_fetch("t", 0), 11)
    assert len(response.responses[0].partitions[0].records) > 5000, (
        "a batch above the quota arrives all the same"
    )
    assert response.throttle_time_ms > 10_000
    wire.ask_later(MetadataRequest(topics=None), 9)
    await admin.ask(MetadataRequest(topics=None), 9)
    assert await nothing_arrives(wire)


async def test_a_fetch_takes_no_more_than_the_quotas_window(wire: Any, make_fetch: Any) -> None:
    await wire.create("t")
    for _ in range(5):
        await wire.produce("t", [b"x" * 1000])
    await set_quota(wire, TEST_CLIENT, consumer_byte_rate=250.0)
    response = await wire.ask(make_fetch("t", 0), 11)
    assert 2000 < len(response.responses[0].partitions[0].records) < 2500
    assert response.throttle_time_ms == 0


async def a_share_member(wire: Any, batch_count: int) -> Member:
    """Returns a member of a group that reads the topic `t` from its beginning."""
    await wire.create("t")
    await set_of_group(wire, share_auto_offset_reset="earliest")
    for _ in range(batch_count):
        await wire.produce("t", [b"x" * 1000])
    return Member(wire, ANNE, await id_of(wire, "t"))


async def first_records(member: Member) -> tuple[bytes, int]:
    """Of the first answer that has some, and its throttle time: the first request may find that the group is still loaded."""
    response = await member.fetch()
    while not response.responses:
        response = await member.fetch()
    (partition,) = response.responses[0].partitions
    return bytes(partition.records), response.throttle_time_ms


async def test_a_member_of_a_share_group_over_the_quota_of_consumers_is_muted(scene: Any) -> None:
    await scene.start(**SETTINGS)
    admin, wire = await scene.connect(), await scene.connect()
    member = await a_share_member(wire, batch_count=1)
    await set_quota(admin, TEST_CLIENT, consumer_byte_rate=10.0)
    records, throttle_time_ms = await first_records(member)
    assert len(records) > 1000, "a batch above the quota arrives all the same"
    assert throttle_time_ms > 10_000
    wire.ask_later(MetadataRequest(topics=None), 9)
    await admin.ask(MetadataRequest(topics=None), 9)
    assert await nothing_arrives(wire)


async def test_a_member_of_a_share_group_is_given_no_more_than_the_quotas_window(scene: Any) -> None:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    member = await a_share_member(wire, batch_count=5)
    await set_quota(wire, TEST_CLIENT, consumer_byte_rate=250.0)
    records, throttle_time_ms = await first_records(member)
    assert 2000 < len(records) < 2500
    assert throttle_time_ms == 0


async def test_the_time_spent_on_requests_is_limited_for_every_api(wire: Any) -> None:
    await set_quota(wire, ANONYMOUS, request_percentage=0.0001)
    await wire.ask(MetadataRequest(topics=None), 9)
    response = await wire.ask(MetadataRequest(topics=None), 9)
    assert 0 < response.throttle_time_ms <= 1000


async def test_time_counts_while_a_request_works_and_not_while_it_waits(wire: Any, make_fetch: Any) -> None:
    await wire.create("t")
    await set_quota(wire, ANONYMOUS, request_percentage=90.0)
    empty = await wire.ask(make_fetch("t", 0, max_wait_ms=200), 11)
    assert empty.throttle_time_ms == 0
    assert await creation(wire, 7, "made", 1) == (0, 0)
    assert await wire.produce("t", [b"x"])
    await set_quota(wire, ANONYMOUS, request_percentage=0.0001)
    code, throttle_ms = await creation(wire, 7, "made at last", 1)
    assert (code, throttle_ms > 0) == (17, True)


async def test_a_client_without_a_quota_is_not_held_up_by_anothers(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t")
    await set_quota(wire, {"client-id": "greedy"}, producer_byte_rate=LITTLE)
    assert (await wire.produce("t", [b"x" * 100])).error_code == 0
    assert await wire.values("t") == [b"x" * 100]
    assert scene.broker.context.quotas.measure_count == 0


async def creation(wire: Any, version: int, topic: str, partitions: int, **options: Any) -> tuple[int, int]:
    new = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[new], timeout_ms=5000, **options)
    response = await wire.ask(request, version)
    return response.topics[0].error_code, response.throttle_time_ms


async def test_changes_to_partitions_are_refused_over_the_quota(scene: Any) -> None:
    await scene.start()
    admin = await scene.connect()
    await admin.create("present", 2)
    await set_quota(admin, ANONYMOUS, controller_mutation_rate=1.0)
    assert await creation(admin, 7, "large", 30, validate_only=True) == (0, 0)
    code, throttle_ms = await creation(admin, 7, "large", 30)
    assert code == 0
    assert throttle_ms > 10_000, "what was not saved up is waited for"

    refused = await scene.connect()
    assert (await creation(refused, 6, "more", 1))[0] == 89
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="present", count=3, assignments=None)], timeout_ms=5000
    )
    refused = await scene.connect()
    assert (await refused.ask(grow, 3)).results[0].error_code == 89
    refused = await scene.connect()
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="present")], timeout_ms=5000)
    assert (await refused.ask(delete, 6)).responses[0].error_code == 89


async def test_clients_that_do_not_know_the_error_are_served_and_wait(scene: Any) -> None:
    await scene.start()
    admin = await scene.connect()
    await set_quota(admin, ANONYMOUS, controller_mutation_rate=1.0)
    for number, version in enumerate((5, 4, 2)):
        wire = await scene.connect()
        code, throttle_ms = await creation(wire, version, f"t{number}", 10)
        assert code == 0
        assert (throttle_ms > 0) == (number > 0)


async def test_an_address_that_connects_too_often_is_refused(scene: Any) -> None:
    await scene.start()
    admin = await scene.connect()
    await set_quota(admin, {"ip": "127.0.0.1"}, connection_creation_rate=1.0)
    wires = [await scene.connect() for _ in range(11)]
    for wire in wires[:10]:
        assert (await wire.ask(MetadataRequest(topics=None), 9)).brokers
    assert await wires[10].closed_by_broker()


async def test_connections_above_the_brokers_rate_wait(scene: Any) -> None:
    await scene.start(max_connection_creation_rate="1000")
    await scene.connect()
    broker = scene.broker.context
    assert broker.quotas.limits_connections
    wires = [await scene.connect() for _ in range(3)]
    assert (await wires[2].ask(MetadataRequest(topics=None), 9)).brokers


async def test_quotas_of_more_entities_than_a_cluster_may_have_are_refused(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odradek.broker.handlers.quotas import alter_client_quotas

    monkeypatch.setattr(alter_client_quotas, "ENTITIES_MAX", 3)
    await set_quota(wire, {"client-id": "first"}, producer_byte_rate=1e9)
    names = [f"client-{number}" for number in range(3)]
    request = alter.AlterClientQuotasRequest(
        entries=[entry({"client-id": name}, producer_byte_rate=1e9) for name in names]
    )
    response = await wire.ask(request, 1)
    assert [quota_entry.error_code for quota_entry in response.entries] == [ErrorCode.POLICY_VIOLATION] * 3
    assert "3" in response.entries[0].error_message
    await set_quota(wire, {"client-id": "client-0"}, producer_byte_rate=1e9)
    assert len((await described(wire)).entries) == 2


def _is_in_the_first_part(client_id: str) -> bool:
    return bool(NO_QUOTAS.with_changes({(("client-id", client_id),): {}}).parts[0])


async def test_quotas_that_take_more_bytes_than_a_registry_does_are_refused(wire: Any) -> None:
    names = [name for name in (f"{number:030000}" for number in range(3000)) if _is_in_the_first_part(name)][
        :30
    ]
    assert len(names) == 30
    request = alter.AlterClientQuotasRequest(
        entries=[entry({"client-id": name}, producer_byte_rate=1e9) for name in names]
    )
    response = await wire.ask(request, 1)
    assert {quota_entry.error_code for quota_entry in response.entries} == {ErrorCode.POLICY_VIOLATION}
    assert "/quotas/0" in response.entries[0].error_message
    assert not (await described(wire)).entries
