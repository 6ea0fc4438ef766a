"""Transactions and a group in a simulated cluster, whose coordinators move with the leaders of their partitions."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.simulation.broker.clients import RefusedError, create_topic
from tests.simulation.cluster.keeper import gather_all
from tests.simulation.cluster.work import Setting
from tests.simulation.groups.consumer_group_history import ConsumerGroupHistory
from tests.simulation.groups.consumer_group_members import ConsumerGroupMember
from tests.simulation.groups.history import GroupHistory
from tests.simulation.groups.members import GroupMember, check_offset, commit_alone
from tests.simulation.groups.scenario import SimulatedMember
from tests.simulation.streams.history import StreamsHistory
from tests.simulation.streams.members import StreamsMember
from tests.simulation.transactions.clients import ClientHabits, Late, TransactionalProducer, deliver_late
from tests.simulation.transactions.history import TransactionHistory
from tests.simulation.transactions.offsets import OFFSETS, OffsetsReader
from tests.simulation.transactions.reader import CommittedReader

from odradek.model.ids import TopicPartition
from odradek.testing.sim.failures import ViolationError

PAID: Final = "paid"
SHARED: Final = "shared"
_ENDING_S_MAX: Final = 60.0
_SETTLING_S_MAX: Final = 90.0


class TransactionWork:
    """Producers of both protocols, zombies, late requests, readers of what is committed."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        rng = setting.stream("transaction work")
        self._history = TransactionHistory()
        self._late = Late()
        self._partitions = [TopicPartition(PAID, index) for index in range(2)]
        zombies, count = rng.random() < 0.4, rng.choice((3, 6))
        self._producers = [
            self._producer(number, incarnation, count)
            for number in range(rng.choice((1, 2)))
            for incarnation in range(1 + zombies)
        ]
        self._is_over = False

    def _producer(self, number: int, incarnation: int, count: int) -> TransactionalProducer:
        setting = self._setting
        return TransactionalProducer(
            setting.context,
            self._history,
            self._late,
            ClientHabits(on_end=lambda: None, is_resting=setting.is_calm, gives_up=0.15),
            setting.stream(f"transactional {number} {incarnation}"),
            name=f"t{number}.{incarnation}",
            transactional_id=f"id-{number}",
            partitions=self._partitions,
            count=count,
            with_epochs=setting.stream(f"protocol {number}").random() < 0.6,
        )

    async def prepare(self) -> None:
        plan = self._setting.plan
        configs = {"message.timestamp.after.max.ms": str(1 << 50), **plan.topic()}
        await self._setting.somewhere(
            create_topic(self._setting.context, PAID, 2, configs, replication=plan.replication)
        )

    async def run(self) -> None:
        await gather_all(
            self._transact(),
            self._setting.somewhere(self._deliver_late()),
            *(
                self._setting.somewhere(self._reader(partition).follow(lambda: self._is_over))
                for partition in self._partitions
            ),
        )

    async def _transact(self) -> None:
        try:
            await gather_all(*(self._setting.somewhere(producer.run()) for producer in self._producers))
        finally:
            self._is_over = True

    async def _deliver_late(self) -> None:
        rng = self._setting.stream("late")
        while not self._is_over:
            await asyncio.sleep(rng.uniform(0.1, 1.5))
            if self._late.requests:
                await deliver_late(self._setting.context, *rng.choice(self._late.requests))

    def _reader(self, partition: TopicPartition) -> CommittedReader:
        return CommittedReader(self._setting.context, self._history, partition, leaders_change=True)

    def undone(self) -> list[str]:
        return [producer.waits_for for producer in self._producers if producer.waits_for]

    async def check(self) -> None:
        contents = {}
        for partition in self._partitions:
            contents[partition] = await self._setting.somewhere(
                self._reader(partition).read_all(_ENDING_S_MAX)
            )
        offsets = OffsetsReader(self._setting.context, self._history.transactions, PAID)
        contents[OFFSETS] = await self._setting.somewhere(offsets.read_all(_ENDING_S_MAX))
        self._history.check(contents)


class GroupWork:
    """A classic group. It must settle once all is calm; what was committed is found again."""

    tasks_of_partition = 1
    """How many things there are to own for each partition of the topic."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        rng = setting.stream("group work")
        self._history = self._new_history()
        self._partition_count = rng.choice((1, 3))
        member_count = rng.choice((2, 3))
        static_count = rng.choice((0, 0, 1))
        self._members = [
            self._member(number, is_static=number < static_count) for number in range(member_count)
        ]
        self._is_over = False

    def _new_history(self) -> GroupHistory:
        return GroupHistory()

    def _member(self, number: int, *, is_static: bool) -> SimulatedMember:
        return GroupMember(
            self._setting.context,
            self._history,
            self._setting.stream(f"member {number}"),
            name=f"m{number}",
            topic=SHARED,
            partition_count=self._partition_count,
            is_static=is_static,
            retires=False,
        )

    async def prepare(self) -> None:
        context, plan = self._setting.context, self._setting.plan
        await self._setting.somewhere(
            create_topic(context, SHARED, self._partition_count, {}, replication=plan.replication)
        )
        await self._setting.somewhere(commit_alone(context, self._history, SHARED))

    async def run(self) -> None:
        await gather_all(
            self._settle(),
            *(
                self._setting.somewhere(member.run(self._setting.is_calm, lambda: self._is_over))
                for member in self._members
            ),
        )

    async def _settle(self) -> None:
        try:
            while not self._setting.is_calm():
                await asyncio.sleep(0.5)
            left_s = _SETTLING_S_MAX
            while not self._is_settled():
                if left_s < 0:
                    seen = [(member.name, member.generation, member.owned) for member in self._members]
                    raise ViolationError(f"stuck: {_SETTLING_S_MAX:.0f} s after the last fault: {seen}")
                left_s -= 0.5
                await asyncio.sleep(0.5)
        finally:
            self._is_over = True

    def _is_settled(self) -> bool:
        generations = {member.generation for member in self._members}
        owned = sorted(partition for member in self._members for partition in member.owned or ())
        is_complete = all(member.owned is not None for member in self._members)
        return (
            is_complete
            and len(generations) == 1
            and owned == list(range(self._partition_count * self.tasks_of_partition))
        )

    def undone(self) -> list[str]:
        return [] if self._is_over else ["the group"]

    async def check(self) -> None:
        await self._setting.somewhere(self._check_offsets())

    async def _check_offsets(self) -> None:
        context = self._setting.context
        partition = 0
        while partition < self._partition_count:
            client = await context.connect()
            try:
                await check_offset(client, self._history, SHARED, partition)  # type: ignore[arg-type]
                partition += 1
            except (OSError, RefusedError):
                await context.pause()
            finally:
                client.close()


class ConsumerGroupWork(GroupWork):
    """The same with the consumer protocol (KIP-848)."""

    def _new_history(self) -> GroupHistory:
        return ConsumerGroupHistory()

    def _member(self, number: int, *, is_static: bool) -> SimulatedMember:
        assert isinstance(self._history, ConsumerGroupHistory)
        return ConsumerGroupMember(
            self._setting.context,
            self._history,
            self._setting.stream(f"member {number}"),
            name=f"m{number}",
            topic=SHARED,
            is_static=is_static,
            retires=False,
        )


class StreamsGroupWork(GroupWork):
    """The same with tasks for partitions (KIP-1071). The brokers create the internal topics. Two members share a process,
    unless they are static."""

    tasks_of_partition = 2

    def _new_history(self) -> GroupHistory:
        return StreamsHistory()

    def _member(self, number: int, *, is_static: bool) -> SimulatedMember:
        assert isinstance(self._history, StreamsHistory)
        return StreamsMember(
            self._setting.context,
            self._history,
            self._setting.stream(f"member {number}"),
            name=f"m{number}",
            process_id=f"m{number}" if is_static else f"p{number // 2}",
            topic=SHARED,
            partition_count=self._partition_count,
            is_static=is_static,
            retires=False,
        )
