"""Who may decide: controllers that come, are deposed, or do not know yet; fencing of brokers."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from odradek.cluster.sync import UpdateKind
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.registry import Put


async def test_a_new_controller_that_knows_the_brokers_elects_no_one(three: Any) -> None:
    await three.topic("t", partitions=6)
    before = three.controller.latest.topics["t"]
    await three.elect(three.brokers[2], knows=three.brokers[2].image)
    assert three.controller.latest.topics["t"] == before
    for number, kind in ((1, UpdateKind.SNAPSHOT), (2, UpdateKind.NOTHING), (3, UpdateKind.SNAPSHOT)):
        assert (await three.brokers[number].ask()).kind is kind
        assert three.brokers[number].image.controller_id == 2
    assert three.controller.latest.topics["t"] == before


async def test_a_new_controller_that_knows_no_one_waits_a_while_for_who_is_registered(three: Any) -> None:
    await three.topic("t", partitions=6)
    before = three.controller.latest.topics["t"]
    await three.elect(three.brokers[2])
    assert three.controller.latest.topics["t"] == before
    await three.brokers[1].ask()
    await three.brokers[2].ask()
    assert three.controller.latest.topics["t"] == before
    three.clock.now += 60
    await three.controller.brokers_changed()
    after = three.controller.latest.topics["t"]
    assert all(3 not in partition.isr and partition.leader in (1, 2) for partition in after.partitions)


async def test_a_deposed_controller_changes_nothing_and_says_so(three: Any) -> None:
    await three.topic("t")
    old = three.controller
    asking = asyncio.ensure_future(old.sync(three.brokers[3].report(), max_wait_s=1000))
    await asyncio.sleep(0)
    await three.elect(three.brokers[2], knows=three.brokers[2].image)
    state = dict(three.tree.nodes)
    (outcome,) = await old.delete_topics([("t", None)])
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.NOT_CONTROLLER
    assert three.tree.nodes == state
    assert three.deposed == [1]
    old.depose()
    with pytest.raises(KafkaError) as refused:
        await asking
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_an_expired_session_ends_the_term(three: Any) -> None:
    three.brokers[1].session.is_over = True
    with pytest.raises(KafkaError) as refused:
        await three.controller.allocate_producer_ids()
    assert refused.value.code is not None
    await three.controller.brokers_changed()
    assert three.deposed == [1]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_after_a_commit_of_unknown_outcome_the_state_is_read_again(three: Any, when: str) -> None:
    await three.topic("t")
    session = three.brokers[1].session
    session.fails.append(when)
    with pytest.raises(KafkaError) as refused:
        await three.controller.alter_topic_configs("t", lambda _: {"retention.ms": "5"})
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await three.controller.alter_topic_configs("t", lambda now: {**now, "retention.bytes": "7"})
    expected = {"retention.bytes": "7"} | ({"retention.ms": "5"} if when == "after" else {})
    assert three.controller.latest.topics["t"].configs == expected
    await three.all_ask()
    assert three.brokers[2].image.topics["t"].configs == expected


async def test_an_election_that_could_not_be_written_is_made_up_for(three: Any) -> None:
    await three.topic("t", partitions=3)
    three.brokers[1].session.fails.append("before")
    await three.kill(3)
    assert any(3 in three.partition("t", index).isr for index in range(3))
    await three.controller.brokers_changed()
    assert all(3 not in three.partition("t", index).isr for index in range(3))


async def test_a_fenced_incarnation_is_refused_and_may_register_again(three: Any) -> None:
    await three.topic("t")
    two = three.brokers[2]
    await three.controller.fence(two.broker_id, two.epoch)
    assert 2 not in three.partition("t").isr
    with pytest.raises(KafkaError) as refused:
        await two.ask()
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    old = two.epoch
    await two.register()
    await two.ask()
    assert two.epoch > old
    assert 2 in {broker.broker_id for broker in three.controller.latest.brokers}
    report = two.report()
    two.epoch = old
    with pytest.raises(KafkaError) as refused:
        await two.ask()
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    await three.controller.fence(two.broker_id, old)  # too late: another incarnation is registered
    assert 2 in {broker.broker_id for broker in three.controller.latest.brokers}
    assert report.broker_epoch > old


async def test_a_registration_that_ends_while_it_is_removed_is_no_fault(
    three: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller has read the registration, and the broker's session is over before it is removed."""
    await three.topic("t")
    two, session = three.brokers[2], three.brokers[1].session
    commit = session.commit

    async def after_its_session_is_over(operations: Any) -> None:
        monkeypatch.setattr(session, "commit", commit)
        two.session.expire()
        await commit(operations)

    monkeypatch.setattr(session, "commit", after_its_session_is_over)
    await three.controller.fence(two.broker_id, two.epoch)
    assert "change_not_written" not in caplog.text
    assert "cluster_state_read_again" not in caplog.text
    await three.controller.brokers_changed()
    assert 2 not in three.partition("t").isr


async def test_fencing_spares_the_incarnation_that_registers_meanwhile(
    three: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller has read the registration of the dead one, and has not removed it yet."""
    dead = three.brokers[2]
    former_epoch = dead.epoch
    session = three.brokers[1].session
    commit = session.commit

    async def after_it_is_back(operations: Any) -> None:
        monkeypatch.setattr(session, "commit", commit)
        await dead.start()
        await commit(operations)

    monkeypatch.setattr(session, "commit", after_it_is_back)
    await three.controller.fence(BrokerId(2), former_epoch)
    assert dead.epoch > former_epoch
    node = await session.get("/brokers/ids/2")
    assert node is not None
    assert node.created == dead.epoch


async def test_a_new_controller_knows_who_is_down(three: Any) -> None:
    await three.kill(3)
    await three.elect(three.brokers[2])
    topic = await three.topic("t")
    assert sorted(topic.partitions[0].replicas) == [1, 2, 3]


async def test_who_claims_to_know_a_later_controller_is_not_believed_without_proof(three: Any) -> None:
    """Anyone can say so; the registry knows whether the term is over."""
    forged = replace(three.brokers[2].report(), controller_epoch=99, version=5)
    response = await three.controller.sync(forged, max_wait_s=0.0)
    assert response.kind is UpdateKind.SNAPSHOT
    stranger = replace(forged, broker_id=BrokerId(77), broker_epoch=123)
    with pytest.raises(KafkaError) as refused:
        await three.controller.sync(stranger, max_wait_s=0.0)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    await three.topic("t")


async def test_who_knows_a_later_controller_tells_an_older_one_that_its_time_is_over(three: Any) -> None:
    old, session = three.controller, three.brokers[1].session
    node = await session.get("/controller_epoch")
    await session.commit([Put(path="/controller_epoch", data=b"2", version=node.version)])
    report = replace(three.brokers[2].report(), controller_epoch=2)
    with pytest.raises(KafkaError) as refused:
        await old.sync(report, max_wait_s=0.0)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert three.deposed == [1]
