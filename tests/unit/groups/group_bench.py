"""A shard of groups without a loop or a disk: operations run at once, on a clock that the test moves.

    bench = GroupBench(GroupSettings(initial_rebalance_delay_ms=0))
    ticket = bench.ticket("A")
    bench.execute(partial(join, request=..., caller=..., ticket=ticket))
    bench.advance(3000)
    bench.answers   # {"A": JoinGroupResponse(...)}

It keeps the shard's rules: records are replayed at once, nothing else changes replicated state, and `restart` makes the machine
again from what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from odradek.groups.classic.kind import CLASSIC
from odradek.groups.offsets.kind import OFFSETS
from odradek.groups.shard.large_targets import LargeTargets
from odradek.groups.shard.machine import GroupDependencies, GroupMachine, KindParts
from odradek.groups.shard.settings import GroupSettings
from odradek.shards import Moment, NewRecord, Outcome, StoredRecord, Ticket

T = TypeVar("T")
WALL_MS: Final = 1_700_000_000_000
"""The time of day when a bench begins."""
_BATCH_BYTES: Final = 1_048_588
_TICKS_MAX: Final = 10_000


class NamedTicket(Ticket[Any]):
    """Its answer is in the bench."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


class BenchTopics:
    """Topics that the test makes and deletes. Each has an id of its own: a number, counted from 1."""

    def __init__(self, topics: dict[str, int]) -> None:
        self._topics: dict[str, tuple[UUID, int]] = {}
        self.version = 0
        for name, partition_count in topics.items():
            self.create(name, partition_count)

    def create(self, name: str, partition_count: int) -> None:
        """Creates a topic, or gives it more partitions."""
        self.version += 1
        topic_id = self.topic_id(name) or UUID(int=self.version)
        self._topics[name] = (topic_id, partition_count)

    def delete(self, name: str) -> None:
        self.version += 1
        del self._topics[name]

    def topic_id(self, name: str) -> UUID | None:
        return self._topics[name][0] if name in self._topics else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, (topic_uuid, _) in self._topics.items() if topic_uuid == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self._topics[name][1] if name in self._topics else 0

    def names(self) -> Collection[str]:
        return self._topics


class GroupBench:
    """`written` is the shard's log: what was appended, and the markers of transactions between."""

    def __init__(
        self,
        settings: GroupSettings | None = None,
        *,
        topics: dict[str, int] | None = None,
        kinds: Sequence[KindParts] = (CLASSIC, OFFSETS),
        batch_bytes_max: int = _BATCH_BYTES,
        large_targets: LargeTargets | None = None,
    ) -> None:
        self.settings = settings or GroupSettings()
        self.now_ms = 0
        self.wall_ms = WALL_MS
        self.written: list[StoredRecord | tuple[int, int, bool]] = []
        self.answers: dict[str, Any] = {}
        """The answers to tickets since they were last looked at, by name."""
        self.batches: list[list[NewRecord]] = []
        self.topics = BenchTopics(topics or {"t": 4})
        self._uuids = 0
        self._kinds = kinds
        self._dependencies = GroupDependencies(
            settings=lambda: self.settings,
            topics=self.topics,
            new_uuid=self._new_uuid,
            batch_bytes_max=lambda: batch_bytes_max,
            large_targets=large_targets,
        )
        self.machine = self._machine()

    def _new_uuid(self) -> UUID:
        self._uuids += 1
        return UUID(int=self._uuids)

    def _machine(self) -> GroupMachine:
        machine = GroupMachine(self._dependencies, self._kinds)
        for entry in self.written:
            if isinstance(entry, StoredRecord):
                # The next coordinator fetched it as a follower, when it was written.
                machine.replay(entry._replace(age_ms=self.wall_ms - entry.timestamp))
            else:
                machine.replay_marker(entry[0], entry[1], is_commit=entry[2])
        machine.loaded(self._now)
        return machine

    @property
    def _now(self) -> Moment:
        return Moment(self.wall_ms, self.now_ms)

    def ticket(self, name: str) -> Ticket[Any]:
        return NamedTicket(name)

    def execute(self, operation: Callable[[GroupMachine, Moment], Outcome[T]]) -> T:
        """Executes an operation as a shard does; raises what it refuses."""
        return self._take(operation(self.machine, self._now))

    def marker(self, producer_id: int, *, is_commit: bool, epoch: int = 0) -> None:
        """The producer's transaction ends."""
        self.written.append((producer_id, epoch, is_commit))
        self.machine.replay_marker(producer_id, epoch, is_commit=is_commit)

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and everything happen that is due in it, at its time."""
        end_ms = self.now_ms + milliseconds
        for _ in range(_TICKS_MAX):
            due_ms = self.machine.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self._move(max(due_ms, self.now_ms))
            self._take(self.machine.tick(self._now))
        else:
            raise AssertionError(f"{_TICKS_MAX} ticks in {milliseconds} ms: something is always due")
        self._move(end_ms)

    def restart(self) -> list[Ticket[Any]]:
        """The machine is rebuilt from the log; returns the requests that waited."""
        waiting = list(self.machine.resigned())
        self.machine = self._machine()
        return waiting

    def _move(self, now_ms: int) -> None:
        self.wall_ms += now_ms - self.now_ms
        self.now_ms = now_ms

    def _take(self, outcome: Outcome[T]) -> T:
        if outcome.records:
            self.batches.append(list(outcome.records))
        producer_id, epoch = outcome.producer or (-1, -1)
        for key, value in outcome.records:
            record = StoredRecord(key, value, len(self.written), self.wall_ms, producer_id, epoch)
            self.written.append(record)
            self.machine.replay(record)
        for reply in outcome.answers:
            assert isinstance(reply.ticket, NamedTicket)
            assert reply.ticket.name not in self.answers, f"{reply.ticket} was answered twice"
            self.answers[reply.ticket.name] = reply.response
        return outcome.reply
