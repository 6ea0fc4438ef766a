"""Random interleavings of clients, repeated and late requests, timeouts and restarts.

Each transaction has a partition of its own, so that it differs from every other one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.shards import Moment, Outcome, StoredRecord
from odradek.transactions.decisions import ProducerIdRequired
from odradek.transactions.machine import TransactionMachine, TransactionTerms
from odradek.transactions.state import (
    EPOCH_MAX,
    MAY_FOLLOW,
    ProducerIdentity,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from odradek.transactions.work import Overdue, Prepared

IDS = ("a", "b")
BUMPING, CLASSIC = TransactionVersion.EPOCH_FOR_EACH, TransactionVersion.CLASSIC


@dataclass(frozen=True)
class End:
    """An EndTxn that a client sent: it may arrive now, later, twice, or never."""

    name: str
    who: ProducerIdentity
    commit: bool
    tag: TopicPartition


@dataclass
class TransactionalProducer:
    """Several share a name, of which only the newest one may write."""

    name: str
    who: ProducerIdentity | None = None
    tag: TopicPartition | None = None
    """Of the transaction that it has begun and not ended."""


@dataclass
class World:
    version: TransactionVersion
    records: list[StoredRecord] = field(default_factory=list)
    now: Moment = field(default_factory=lambda: Moment(1_700_000_000_000, 0))
    next_id: int = 0
    next_tag: int = 0
    sent: list[End] = field(default_factory=list)
    outcomes: dict[TopicPartition, bool] = field(default_factory=dict)
    prepared: list[Prepared] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = self.fresh()

    def fresh(self) -> TransactionMachine:
        terms = TransactionTerms(
            id_expiration_ms=10**12, timeout_check_ms=1, expiration_check_ms=10**12, level=BUMPING
        )
        machine = TransactionMachine(lambda: terms)
        for record in self.records:
            machine.replay(record)
        machine.loaded(self.now)
        return machine

    def run(self, operation: Any) -> Any:
        """Decide, write, replay; a fresh producer id where one is needed. None if it was refused."""
        try:
            try:
                outcome: Outcome[Any] = operation(None)
            except ProducerIdRequired:
                self.next_id += 1
                outcome = operation(self.next_id)
        except KafkaError:
            return None
        for key, value in outcome.records:
            before = dict(sorted(self.machine.entries().reply))
            record = StoredRecord(key, value, len(self.records), self.now.wall_ms)
            self.records.append(record)
            self.machine.replay(record)
            self.check(before)
        return outcome.reply

    def check(self, before: dict[str, Transaction]) -> None:
        for name, after in sorted(self.machine.entries().reply):
            old = before.get(name)
            if old == after:
                continue
            state = TransactionState.EMPTY if old is None else old.state
            assert state in MAY_FOLLOW[after.state]
            if old is not None and after.producer_id == old.producer_id:
                assert after.producer_epoch >= old.producer_epoch, "an epoch never comes back"
            if after.state.is_prepared:
                self.note_decision(name, after)

    def note_decision(self, name: str, after: Transaction) -> None:
        for tag in after.partitions:
            assert self.outcomes.setdefault(tag, after.is_commit) == after.is_commit, "one outcome only"

    def restart(self) -> None:
        replayed = self.fresh()
        assert sorted(replayed.entries().reply) == sorted(self.machine.entries().reply)
        self.machine = replayed
        decided = {name for name, state in sorted(self.machine.entries().reply) if state.state.is_prepared}
        assert self.machine.decided == decided == self.machine.unclaimed


def act(world: World, producers: list[TransactionalProducer], choice: int, number: int) -> None:
    producer = producers[number % len(producers)]
    if choice == 0:
        init(world, producer)
    elif choice == 1:
        begin(world, producer)
    elif choice in (2, 3):
        send_end(world, producer, commit=choice == 2)
    elif choice == 4 and world.sent:
        deliver(world, producers, world.sent[number % len(world.sent)])
    elif choice == 5:
        finish(world, number)
    elif choice == 6:
        time_out(world)
    elif choice == 7:
        world.restart()
    world.now = Moment(world.now.wall_ms + 1, world.now.monotonic_ms + 1)


def init(world: World, producer: TransactionalProducer) -> None:
    producer.tag = None
    producer.who = world.run(
        lambda fresh: world.machine.init_producer(
            producer.name, timeout_ms=20, expected=None, fresh_producer_id=fresh, now=world.now
        )
    )


def begin(world: World, producer: TransactionalProducer) -> None:
    if producer.who is None or producer.tag is not None:
        return
    world.next_tag += 1
    tag, who = TopicPartition("t", world.next_tag), producer.who
    before = len(world.records)
    world.run(
        lambda _: world.machine.add_partitions(
            producer.name, who, frozenset({tag}), client_version=world.version, now=world.now
        )
    )
    if len(world.records) > before:
        producer.tag = tag


def send_end(world: World, producer: TransactionalProducer, *, commit: bool) -> None:
    if producer.who is not None and producer.tag is not None:
        world.sent.append(End(producer.name, producer.who, commit, producer.tag))


def deliver(world: World, producers: list[TransactionalProducer], request: End) -> None:
    before = len(world.records)
    reply = world.run(
        lambda fresh: world.machine.end(
            request.name,
            request.who,
            commit=request.commit,
            client_version=world.version,
            fresh_producer_id=fresh,
            now=world.now,
        )
    )
    if len(world.records) > before and world.version is BUMPING:
        written = world.machine.find(request.name).reply
        assert written is not None
        assert written.partitions <= {request.tag}, "a late request ended another transaction"
    if reply is not None:
        for producer in producers:
            if producer.tag == request.tag:
                producer.who, producer.tag = reply, None


def finish(world: World, number: int) -> None:
    decided = sorted(world.machine.decided)
    if decided:
        prepared = world.machine.prepared(decided[number % len(decided)])
        world.prepared.append(prepared)
    if world.prepared:
        chosen = world.prepared[number % len(world.prepared)]
        before = world.machine.find(chosen.transactional_id).reply
        world.run(lambda _: world.machine.complete(chosen, world.now))
        after = world.machine.find(chosen.transactional_id).reply
        assert after == before or before == chosen.transaction, "only the decision at hand is completed"


def time_out(world: World) -> None:
    world.now = Moment(world.now.wall_ms + 30, world.now.monotonic_ms + 30)
    for name, state in sorted(world.machine.entries().reply):
        overdue = Overdue(transactional_id=name, identity=state.identity)
        world.run(
            lambda fresh, overdue=overdue: world.machine.abort_overdue(
                overdue, fresh_producer_id=fresh, now=world.now
            )
        )
        assert world.machine.find(name).reply.state is not TransactionState.ONGOING


STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 11)), min_size=5, max_size=80)
MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(STEPS)
def test_clients_with_an_epoch_for_each_transaction(steps: list[tuple[int, int]]) -> None:
    world = World(BUMPING)
    producers = [TransactionalProducer(name) for name in IDS for _ in range(2)]
    for choice, number in steps:
        act(world, producers, choice, number)
    world.restart()


@MANY
@given(STEPS)
def test_classic_clients(steps: list[tuple[int, int]]) -> None:
    world = World(CLASSIC)
    producers = [TransactionalProducer(name) for name in IDS for _ in range(2)]
    for choice, number in steps:
        act(world, producers, choice, number)
    world.restart()


@MANY
@given(STEPS, st.integers(EPOCH_MAX - 6, EPOCH_MAX - 1))
def test_near_the_last_epoch(steps: list[tuple[int, int]], epoch: int) -> None:
    world = World(BUMPING)
    producers = [TransactionalProducer(name) for name in IDS for _ in range(2)]
    for producer in producers:
        init(world, producer)
    for name in IDS:  # as if they had been used for a long time
        current = world.machine.find(name).reply
        assert current is not None
        aged = Transaction(
            producer_id=current.producer_id,
            producer_epoch=epoch,
            previous_producer_id=current.producer_id,
            state=TransactionState.EMPTY,
            timeout_ms=20,
            updated_ms=world.now.wall_ms,
        )
        record = world.machine.record(name, aged)
        stored = StoredRecord(record.key, record.value, len(world.records), world.now.wall_ms)
        world.records.append(stored)
        world.machine.replay(stored)
    for choice, number in steps:
        act(world, producers, choice, number)
    world.restart()
