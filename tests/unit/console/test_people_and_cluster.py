"""The time line, effects of access rules, the audit's sieve, and plans as text: pure parts of the console's model."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.console.test_model import topic

from odradek.client.admin.moves import MOVES_AT_ONCE, THROTTLE_RATES, next_moves, throttle_changes
from odradek.client.admin.types import ConfigResource
from odradek.cluster.balance import Move
from odradek.console.model.access_reading import SharedReading
from odradek.console.model.acl_changes import EFFECTS_MAX, RESOURCES_MAX, effects_of
from odradek.console.model.assembly import tabulated
from odradek.console.model.audit_reading import EVENTS_MAX, AuditSieve
from odradek.console.model.moving import moves_that_wait, parse_plan_text, plan_text
from odradek.console.model.snapshot import UNKNOWN, BrokerFigures, ModelSnapshot, Reading
from odradek.console.model.time_line import EVENTS_OF_A_READING_MAX, LEVELS, ClusterTimeLine, events_between
from odradek.console.web.catalogue import catalogue
from odradek.model.errors import KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.runtime.real_clock import SystemClock
from odradek.security.acls import Acl, AclPattern

READ = {part: Reading(read_ms=1) for part in ("brokers", "topics", "disks", "groups")}


def snapshot(*topics: Any, alive: tuple[int, ...] = (1, 2), controller: int = 1) -> ModelSnapshot:
    figures, table = tabulated(topics)
    brokers = tuple(
        BrokerFigures(broker_id=number, is_alive=number in alive, is_controller=number == controller)
        for number in (1, 2, 3)
    )
    return ModelSnapshot(brokers=brokers, topics=figures, partitions=table, readings=READ)


def kinds(before: ModelSnapshot, after: ModelSnapshot) -> list[tuple[str, int, int]]:
    return [(event.kind, event.broker, event.count) for event in events_between(before, after, 1)]


def test_a_brokers_death_is_a_few_events_however_many_partitions_it_led() -> None:
    healthy = [(1, (1, 2), (1, 2))] * 40
    failed = [(2, (1, 2), (2,))] * 40
    before = snapshot(topic("a", *healthy), topic("alone", (1, (1,), (1,))))
    after = snapshot(topic("a", *failed), topic("alone", (-1, (1,), (1,))), alive=(2,), controller=2)
    assert kinds(before, after) == [
        ("broker_lost", 1, 0),
        ("controller", 2, 0),
        ("elected", 1, 40),
        ("isr_shrunk", 1, 40),
        ("leader_lost", 1, 1),
    ]
    assert kinds(after, before) == [
        ("broker_back", 1, 0),
        ("controller", 1, 0),
        ("preferred", 1, 40),
        ("isr_grown", 1, 40),
        ("leader_back", 1, 1),
    ]
    assert events_between(before, after, 1)[2].examples == ("a-0", "a-1", "a-2")


def test_moves_and_topics_that_come_and_go_are_events_and_nothing_else_is() -> None:
    before = snapshot(topic("a", (1, (1, 2), (1, 2))), topic("gone", (1, (1,), (1,))))
    after = snapshot(topic("a", (1, (1, 3), (1, 3))), topic("new", (1, (1,), (1,))))
    assert kinds(before, after) == [
        ("moved", UNKNOWN, 1),
        ("topics_new", UNKNOWN, 1),
        ("topics_gone", UNKNOWN, 1),
    ]
    assert kinds(before, replace(before, version=7)) == []


def test_healing_is_seen_from_the_dead_broker_whose_replicas_are_made_again() -> None:
    lacking = snapshot(topic("a", *[(1, (1, 2), (1,))] * 3), alive=(1, 3))
    copying = snapshot(topic("a", *[(1, (1, 2, 3), (1,))] * 3), alive=(1, 3))
    whole = snapshot(topic("a", *[(1, (1, 3), (1, 3))] * 3), alive=(1, 3))
    assert kinds(lacking, copying) == [("healing", 2, 3)]
    assert kinds(copying, whole) == [("isr_grown", 3, 3), ("healed", 2, 3)]
    assert kinds(lacking, whole) == [("healed", 2, 3)], "both happened between two readings"
    alive = (1, 2, 3)
    moved = [snapshot(topic("a", (1, replicas, (1,))), alive=alive) for replicas in ((1, 2), (1, 2, 3))]
    assert kinds(*moved) == [("moved", UNKNOWN, 1)], "no broker is dead"


def test_events_of_a_reading_and_of_the_line_are_bounded() -> None:
    many = snapshot(*[topic(f"t{number}", (number, (number,), (number,))) for number in range(1, 100)])
    none = snapshot(*[topic(f"t{number}", (-1, (number,), (number,))) for number in range(1, 100)])
    events = events_between(many, none, 1)
    assert len(events) == EVENTS_OF_A_READING_MAX + 1
    assert (events[-1].kind, events[-1].count) == ("more", 99 - EVENTS_OF_A_READING_MAX)
    line = ClusterTimeLine(events_max=60)
    line.note(ModelSnapshot(), 5)
    assert line.since_ms == UNKNOWN, "nothing was read yet"
    for at_ms, state in enumerate((many, none, many)):
        line.note(state, at_ms)
    assert (line.since_ms, len(line.events()), line.dropped) == (
        0,
        60,
        2 * (EVENTS_OF_A_READING_MAX + 1) - 60,
    )
    assert line.events()[0].at_ms == 2, "the newest comes first"


@pytest.mark.parametrize("language", ["en", "ru"])
def test_each_kind_of_event_has_words(language: str) -> None:
    for kind in LEVELS:
        assert catalogue(language).text(f"event.{kind}", broker=3, count=2)


ORDERS = AclPattern(AclResourceType.TOPIC, "orders")
ALLOW = Acl(ORDERS, "User:ann", "*", AclOperation.READ, AclPermission.ALLOW)
FREE = {"allow.everyone.if.no.acl.found": "true"}


def test_a_first_rule_about_a_resource_takes_it_from_everyone_else() -> None:
    effects = effects_of([], [ALLOW], [ALLOW], FREE, {})
    lost = {effect.operation for effect in effects.effects if effect.principal == "User:*"}
    assert AclOperation.WRITE in lost
    assert AclOperation.READ in lost
    assert not any(effect.is_allowed for effect in effects.effects)
    strict = effects_of([], [ALLOW], [ALLOW], {}, {})
    assert [
        (effect.principal, effect.is_allowed)
        for effect in strict.effects
        if effect.operation is AclOperation.READ
    ] == [("User:ann", True)]


def test_a_rule_that_changes_nothing_says_so_and_super_users_are_left_out() -> None:
    everyone = ALLOW._replace(principal="User:*")
    assert effects_of([everyone], [everyone, ALLOW], [ALLOW], {}, {}).effects == ()
    assert effects_of([], [ALLOW], [ALLOW], {"super.users": "User:ann"}, {}).effects == ()


def test_effects_are_bounded_in_principals_resources_and_rows() -> None:
    prefix = AclPattern(AclResourceType.TOPIC, "t", PatternType.PREFIXED)
    rule = Acl(prefix, "User:*", "*", AclOperation.ALL, AclPermission.ALLOW)
    others = [ALLOW._replace(principal=f"User:u{number}") for number in range(300)]
    names = {AclResourceType.TOPIC: [f"t{number:03}" for number in range(100)] + ["other"]}
    effects = effects_of(others, [*others, rule], [rule], {}, names)
    assert (len(effects.resources), effects.is_partial) == (RESOURCES_MAX, True)
    assert len(effects.effects) == EFFECTS_MAX
    assert effects.left_out > 0


def record(event: Any) -> Any:
    return SimpleNamespace(value=event if isinstance(event, bytes) else json.dumps(event).encode())


def test_the_sieve_keeps_the_newest_and_counts_the_rest() -> None:
    sieve = AuditSieve({"api": "Create*", "resource": None}, since_ms=10)
    test = sieve.test()
    for at_ms in range(3 * EVENTS_MAX):
        assert test(record({"time_ms": at_ms, "api": "CreateTopics"})) is False
    for nonsense in (b"", b"[]", b"{", b"[" * 100_000, b"\xff"):
        test(record(nonsense))
    test(record({"time_ms": "late", "api": "CreateTopics"}))
    test(record({"time_ms": 5, "api": ["CreateTopics"]}))
    newest = sieve.newest()
    assert [event["time_ms"] for event in newest] == list(range(3 * EVENTS_MAX - 1, 2 * EVENTS_MAX - 1, -1))
    assert (sieve.unreadable, sieve.matching) == (5, 3 * EVENTS_MAX - 10)
    assert sieve.oldest_ms == 0


def move(partition: int, before: tuple[int, ...], after: tuple[int, ...]) -> Move:
    return Move(
        name=TopicPartition("a.b-c_d", partition),
        before=tuple(map(BrokerId, before)),
        after=tuple(map(BrokerId, after)),
        copied_bytes=partition * 1000,
    )


def test_a_plan_comes_back_from_its_form_as_it_was_shown() -> None:
    moves = [move(number, (1, 2), (2, 3)) for number in range(3)]
    assert parse_plan_text(plan_text(moves)) == moves
    assert parse_plan_text(plan_text(moves).replace("\n", "\r\n")) == moves
    for nonsense in ("a", "a 0 1 2", "a x 1 2 3", "a 0 1, 2 3", "a 0 1 2 3 4"):
        with pytest.raises(KafkaError, match="cannot be read"):
            parse_plan_text(nonsense)


def test_moves_of_partitions_without_a_leader_are_named() -> None:
    known = snapshot(topic("a.b-c_d", (1, (1,), (1,)), (-1, (2,), ())))
    moves = [move(number, (2,), (1,)) for number in range(2)]
    assert moves_that_wait(known, moves) == [TopicPartition("a.b-c_d", 1)]
    assert moves_that_wait(known, moves[:1]) == []


def test_moves_begin_a_few_at_a_time_and_throttles_leave_out_dead_brokers() -> None:
    moves = [move(number, (1,), (2,)) for number in range(MOVES_AT_ONCE + 10)]
    begun, left = next_moves(moves, 20)
    assert (len(begun), len(left)) == (MOVES_AT_ONCE - 20, 30)
    assert next_moves(moves, MOVES_AT_ONCE + 5) == ([], moves)
    changes = throttle_changes(moves, 1000, alive={2, 7})
    assert changes.keys() == {ConfigResource.broker(2), ConfigResource.topic("a.b-c_d")}
    assert changes[ConfigResource.broker(2)] == dict.fromkeys(THROTTLE_RATES, "1000")
    assert set(throttle_changes(moves, None, {1, 2})[ConfigResource.topic("a.b-c_d")].values()) == {None}


async def test_callers_share_a_reading_and_a_change_has_it_read_again() -> None:
    calls: list[asyncio.Future[int]] = []

    async def call() -> int:
        calls.append(asyncio.get_running_loop().create_future())
        return await calls[-1]

    reading = SharedReading(call, SystemClock())
    callers = [asyncio.ensure_future(reading.get()) for _ in range(5)]
    while not calls:
        await asyncio.sleep(0)
    reading.forget()  # a change, while the reading before it is under way
    later = asyncio.ensure_future(reading.get())
    while len(calls) < 2:
        await asyncio.sleep(0)
    calls[0].set_result(1)
    assert await asyncio.gather(*callers) == [1] * 5
    calls[1].set_result(2)
    assert await later == 2
    assert await reading.get() == 2
    assert len(calls) == 2
    reading.forget()
    failing = asyncio.ensure_future(reading.get())
    while len(calls) < 3:
        await asyncio.sleep(0)
    calls[2].set_exception(KafkaError.__new__(KafkaError))
    with pytest.raises(KafkaError):
        await failing
    again = asyncio.ensure_future(reading.get())
    while len(calls) < 4:
        await asyncio.sleep(0)
    calls[3].set_result(4)
    assert await again == 4
