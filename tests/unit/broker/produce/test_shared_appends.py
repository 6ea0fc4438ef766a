"""Batches of one round of the loop are appended together and answered one by one, and no request suffers for another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit.append_sizes import append_sizes
from tests.unit.replication.role_world import ME, NOW_MS, TWO, World, batches

from odradek.broker.produce import shared_appends
from odradek.broker.produce.shared_appends import SharedAppends, SingleReply
from odradek.model.errors import ErrorCode, KafkaError
from odradek.net.replies import Chunks, Reply
from odradek.records import BatchHeader
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition
from odradek.runtime.prompt import PromptFuture
from odradek.storage.log.results import AppendResult
from odradek.storage.producers.verification import UNVERIFIED


class Persisted:
    """The waits that were counted."""

    def __init__(self) -> None:
        self.count = 0

    def persisted(self, *, fsync_s: float, replicated_s: float | None) -> None:
        self.count += 1


class Asked:
    """A request, as the handler makes it. `alone` serves it in the general way."""

    def __init__(
        self,
        partition: Partition,
        *,
        all_: bool = False,
        timeout_ms: int = 60_000,
        alone: Callable[[Asked], Reply] | None = None,
        **producer: Any,
    ) -> None:
        self.partition = partition
        self.batch: tuple[BatchHeader, memoryview] = batches(**producer)[0]
        self.waits_for_all = all_
        self.timeout_ms = timeout_ms
        self.alone = alone or (lambda asked: asked.by_itself())
        self.reply: SingleReply
        self.chunks: Chunks
        self.last_offset: int

    def appended(self, base_offset: int, appended: AppendResult) -> None:
        self.chunks = [b"%d" % base_offset]
        self.last_offset = base_offset + self.batch[0].last_offset_delta

    def refused(self, ended: asyncio.Future[None]) -> Chunks:
        if ended.cancelled():
            return [b"timed out"]
        error = ended.exception()
        assert isinstance(error, KafkaError)
        return [error.code.name.encode()]

    def forget_frame(self) -> None: ...

    def serve_alone(self) -> Reply:
        return self.alone(self)

    def by_itself(self) -> Reply:
        try:
            appended = self.partition.leader().append((self.batch,), now_ms=NOW_MS, guard=UNVERIFIED)
        except KafkaError as error:
            return [error.code.name.encode()]
        return [b"alone %d" % appended.first_offset]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.lead(ME, replicas=(ME,))
    return world


@pytest.fixture
def figures() -> Persisted:
    return Persisted()


@pytest.fixture
def appends(figures: Persisted) -> SharedAppends:
    return SharedAppends(wall_ms=lambda: NOW_MS, monotonic=lambda: 0.0, figures=figures)


@pytest.fixture
def group_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each append of a leader had."""
    return append_sizes(monkeypatch)


def gathered(appends: SharedAppends, *requests: Asked) -> list[SingleReply]:
    replies = [appends.append(request, NOW_MS) for request in requests]
    assert all(isinstance(reply, PromptFuture) and not reply.done() for reply in replies)
    return replies  # type: ignore[return-value]


async def round_over() -> None:
    await asyncio.sleep(0)


async def test_batches_of_one_round_are_appended_together_and_answered_one_by_one(
    world: World, appends: SharedAppends, group_sizes: list[int]
) -> None:
    requests = [Asked(world.partition, count=count) for count in (1, 3, 2)]
    replies = gathered(appends, *requests)
    await round_over()
    assert [reply.result() for reply in replies] == [[b"0"], [b"1"], [b"4"]]
    assert group_sizes == [3]
    assert world.log.end_offset == 6


async def test_after_a_round_without_company_the_next_requests_are_appended_at_once(
    world: World, appends: SharedAppends, group_sizes: list[int]
) -> None:
    gathered(appends, Asked(world.partition))
    await round_over()
    at_once = [appends.append(Asked(world.partition), NOW_MS) for _ in range(32)]
    assert at_once == [[b"%d" % offset] for offset in range(1, 33)]
    [again] = gathered(appends, Asked(world.partition))
    await round_over()
    assert again.result() == [b"33"]
    assert group_sizes == [1] * 34


async def test_requests_go_on_being_gathered_while_rounds_bring_several(
    world: World, appends: SharedAppends, group_sizes: list[int]
) -> None:
    for _ in range(3):
        gathered(appends, Asked(world.partition), Asked(world.partition))
        await round_over()
    assert group_sizes == [2, 2, 2]


async def test_a_flush_appends_before_the_round_is_over_and_the_rest_of_it_comes_behind(
    world: World, appends: SharedAppends, group_sizes: list[int]
) -> None:
    first = gathered(appends, Asked(world.partition), Asked(world.partition))
    appends.flush()
    assert [reply.result() for reply in first] == [[b"0"], [b"1"]]
    second = gathered(appends, Asked(world.partition), Asked(world.partition))
    await round_over()
    assert [reply.result() for reply in second] == [[b"2"], [b"3"]]
    assert group_sizes == [2, 2]


@pytest.mark.parametrize("all_", [False, True])
async def test_replies_that_lead_to_more_flushes_leave_the_loop_to_others_in_between(
    world: World, appends: SharedAppends, all_: bool
) -> None:
    answers: list[Chunks | None] = []
    under_way = 0

    def send() -> None:
        reply, _ = gathered(appends, Asked(world.partition, all_=all_), Asked(world.partition, all_=all_))
        reply.add_done_callback(answered)

    def answered(reply: SingleReply) -> None:
        nonlocal under_way
        answers.append(reply.result())
        assert not under_way, "a reply is settled inside another"
        under_way += 1
        if len(answers) < 50:
            send()
            appends.flush()
            if all_:
                world.flush()
        under_way -= 1

    send()
    appends.flush()
    if all_:
        world.flush()
    assert len(answers) == (0 if all_ else 1)
    for _ in range(200):
        before = len(answers)
        await round_over()
        assert len(answers) - before <= 1
    assert answers == [[b"%d" % offset] for offset in range(0, 100, 2)]


async def test_the_replies_of_many_groups_are_settled_in_parts(
    tmp_path: Path, appends: SharedAppends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush of the disk acknowledges all that was appended meanwhile with acks=all."""
    monkeypatch.setattr(shared_appends, "GATHERED_MAX", 4)
    world = World(tmp_path)
    world.lead(ME, replicas=(ME,))
    replies = [appends.append(Asked(world.partition, all_=True), NOW_MS) for _ in range(12)]
    appends.flush()
    world.flush()
    for _ in range(3):
        await round_over()
    assert [reply.result() for reply in replies] == [[b"%d" % offset] for offset in range(12)]  # type: ignore[union-attr]


async def test_a_round_that_brings_much_is_appended_in_parts(
    world: World, appends: SharedAppends, group_sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_appends, "GATHERED_MAX", 4)
    replies = [appends.append(Asked(world.partition), NOW_MS) for _ in range(10)]
    await round_over()
    assert group_sizes == [4, 4, 2]
    assert [reply.result() for reply in replies] == [[b"%d" % offset] for offset in range(10)]  # type: ignore[union-attr]


async def test_bytes_count_too(
    world: World, appends: SharedAppends, group_sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [Asked(world.partition) for _ in range(3)]
    monkeypatch.setattr(shared_appends, "GATHERED_BYTES_MAX", len(requests[0].batch[1]) + 1)
    for request in requests:
        appends.append(request, NOW_MS)
    assert group_sizes == [2]
    await round_over()
    assert group_sizes == [2, 1]


async def test_acks_all_is_answered_when_the_group_is_durable_and_acks_1_before(
    world: World, appends: SharedAppends, figures: Persisted
) -> None:
    replies = gathered(
        appends, Asked(world.partition, all_=True), Asked(world.partition), Asked(world.partition, all_=True)
    )
    await round_over()
    assert [reply.done() for reply in replies] == [False, True, False]
    world.flush()
    await round_over()
    assert [reply.result() for reply in replies] == [[b"0"], [b"1"], [b"2"]]
    assert figures.count == 2


async def test_requests_of_a_group_have_timeouts_of_their_own(world: World, appends: SharedAppends) -> None:
    short, long = gathered(
        appends, Asked(world.partition, all_=True, timeout_ms=0), Asked(world.partition, all_=True)
    )
    await short
    assert short.result() == [b"timed out"]
    assert not long.done()
    world.flush()
    await round_over()
    assert long.result() == [b"1"]


async def test_a_group_that_ends_without_success_acknowledges_what_is_committed(
    tmp_path: Path, appends: SharedAppends
) -> None:
    world = World(tmp_path)
    world.lead(ME, TWO, replicas=(ME, TWO))
    first, second = gathered(appends, Asked(world.partition, all_=True), Asked(world.partition, all_=True))
    await round_over()
    world.flush()
    world.fetched(TWO, 1)
    assert world.partition.high_watermark == 1
    world.partition.retire(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "gone"))
    await round_over()
    assert first.result() == [b"0"]
    assert second.result() == [b"NOT_LEADER_OR_FOLLOWER"]


async def test_the_wait_ends_when_all_clients_of_a_group_have_left(
    world: World, appends: SharedAppends, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[asyncio.Future[None]] = []
    real = LeaderRole.acknowledgement

    def acknowledgement(self: LeaderRole, last_offset: int) -> asyncio.Future[None] | None:
        future = real(self, last_offset)
        assert future is not None
        waits.append(future)
        return future

    monkeypatch.setattr(LeaderRole, "acknowledgement", acknowledgement)
    first, second = gathered(appends, Asked(world.partition, all_=True), Asked(world.partition, all_=True))
    await round_over()
    first.cancel()
    assert not waits[0].done()
    second.cancel()
    assert waits[0].cancelled()
    assert world.log.end_offset == 2


def gap(partition: Partition, **how: Any) -> Asked:
    """A batch of a producer that the partition does not expect yet."""
    return Asked(partition, producer_id=9, producer_epoch=0, base_sequence=7, **how)


async def test_one_that_is_refused_does_not_harm_the_others_and_order_stays(
    world: World, appends: SharedAppends
) -> None:
    start = Asked(world.partition, producer_id=9, producer_epoch=0, base_sequence=0)
    served: list[Asked] = []

    def alone(asked: Asked) -> Reply:
        served.append(asked)
        return asked.by_itself()

    requests = [
        start,
        Asked(world.partition, alone=alone),
        gap(world.partition, alone=alone),
        Asked(world.partition, alone=alone),
    ]
    start.alone = alone
    replies = gathered(appends, *requests)
    await round_over()
    assert [reply.result() for reply in replies] == [
        [b"alone 0"],
        [b"alone 1"],
        [b"OUT_OF_ORDER_SEQUENCE_NUMBER"],
        [b"alone 2"],
    ]
    assert served == requests


async def test_batches_that_are_in_the_log_already_keep_their_offsets(
    world: World, appends: SharedAppends
) -> None:
    def batch(sequence: int) -> Asked:
        return Asked(world.partition, producer_id=9, producer_epoch=0, base_sequence=sequence)

    gathered(appends, batch(0), batch(1))
    await round_over()
    again = gathered(appends, batch(0), batch(1))
    await round_over()
    assert [reply.result() for reply in again] == [[b"alone 0"], [b"alone 1"]]
    assert world.log.end_offset == 2


async def test_a_log_file_stays_open_for_what_was_gathered_and_no_longer(
    world: World, appends: SharedAppends
) -> None:
    world.append()
    world.flush()
    gathered(appends, Asked(world.partition), Asked(world.partition))
    writer = world.log.pin()
    assert writer is not None
    world.log.unpin(writer)
    assert not writer.rest()
    await round_over()
    world.flush()
    assert writer.rest()
    assert isinstance(appends.append(Asked(world.partition), NOW_MS), list), (
        "what would have to open it is not gathered"
    )


async def test_answers_that_come_later_are_passed_on_and_given_up_with_their_clients(
    world: World, appends: SharedAppends
) -> None:
    answers: list[asyncio.Future[Chunks | None]] = [
        asyncio.get_running_loop().create_future() for _ in range(4)
    ]

    def later(number: int) -> Asked:
        return gap(world.partition, alone=lambda _: answers[number])

    assert Asked(world.partition, producer_id=9, producer_epoch=0, base_sequence=0).by_itself()
    replies = gathered(appends, *[later(number) for number in range(4)])
    await round_over()
    answers[0].set_result([b"good"])
    answers[1].set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "bad"))
    answers[2].cancel()
    replies[3].cancel()
    await round_over()
    assert replies[0].result() == [b"good"]
    assert isinstance(replies[1].exception(), KafkaError)
    assert replies[2].cancelled()
    assert answers[3].cancelled()


async def test_work_of_a_client_that_left_before_it_began_ends_after_its_first_step(
    world: World, appends: SharedAppends
) -> None:
    """A task that never makes a step leaves coroutines unawaited."""
    steps: list[str] = []

    async def work() -> Chunks | None:
        steps.append("began")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            steps.append("ended")
            raise
        return None

    async def finish(response: Awaitable[Chunks | None]) -> Chunks | None:
        return await response

    assert Asked(world.partition, producer_id=9, producer_epoch=0, base_sequence=0).by_itself()
    [reply] = gathered(appends, gap(world.partition, alone=lambda _: finish(work())))
    reply.cancel()
    for _ in range(4):
        await round_over()
    assert steps == ["began", "ended"]


async def test_an_unexpected_error_reaches_the_connections(world: World, appends: SharedAppends) -> None:
    def broken(_: Asked) -> Awaitable[Chunks | None]:
        raise ValueError("a bug")

    assert Asked(world.partition, producer_id=9, producer_epoch=0, base_sequence=0).by_itself()
    [reply] = gathered(appends, gap(world.partition, alone=broken))
    await round_over()
    assert isinstance(reply.exception(), ValueError)


async def test_a_leadership_that_ended_meanwhile_is_met_by_each_request(
    world: World, appends: SharedAppends
) -> None:
    def alone(asked: Asked) -> Reply:
        with pytest.raises(KafkaError) as refused:
            asked.partition.leader()
        return [refused.value.code.name.encode()]

    replies = gathered(appends, *[Asked(world.partition, alone=alone) for _ in range(2)])
    world.partition.retire(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "gone"))
    await round_over()
    assert [reply.result() for reply in replies] == [[b"NOT_LEADER_OR_FOLLOWER"]] * 2
