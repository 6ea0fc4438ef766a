"""The gate before a connection's requests: each reason that holds the next one up, and when it is over. No sockets."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from odradek.net.listening import ServerLimits
from odradek.net.replies import ReplyQueue, ReplySlot
from odradek.net.serving_gate import ServingGate
from odradek.runtime.turns import Turns

FRAME = memoryview(b"7")
OTHER_FRAME = memoryview(b"8")
PARKED_BYTES = 1024 * 1024


@dataclass
class Terms:
    """Requests overlap whose first byte is the same digit."""

    limits: ServerLimits = field(default_factory=lambda: ServerLimits(in_flight_max=3))
    turns: Turns = field(default_factory=lambda: Turns(lambda: 0.0))
    pipeline_of: Callable[[memoryview], int | None] = lambda frame: int(bytes(frame[:1]))


@pytest.fixture
def replies() -> ReplyQueue:
    return ReplyQueue(lambda: 0.0)


@pytest.fixture
def gate(replies: ReplyQueue) -> ServingGate:
    return ServingGate(Terms(), replies)


def waiting(gate: ServingGate, replies: ReplyQueue, *, pipeline: int | None = 7) -> ReplySlot:
    """A request that waits for its answer."""
    gate.pipeline = pipeline
    return replies.add(None)


def test_a_connection_without_requests_under_way_is_served(gate: ServingGate) -> None:
    assert gate.may_serve()
    assert gate.may_begin(FRAME)
    assert not gate.may_wait, "there is no request to wait behind"


def test_a_peer_that_does_not_read_is_not_served(gate: ServingGate) -> None:
    gate.peer_reads = False
    assert not gate.may_serve()
    gate.peer_reads = True
    assert gate.may_serve()


def test_only_requests_of_the_same_pipeline_overlap(gate: ServingGate, replies: ReplyQueue) -> None:
    waiting(gate, replies)
    assert gate.may_serve()
    assert gate.may_begin(FRAME)
    assert not gate.may_begin(OTHER_FRAME)


def test_a_request_outside_of_all_pipelines_is_waited_for(gate: ServingGate, replies: ReplyQueue) -> None:
    slot = waiting(gate, replies, pipeline=None)
    assert not gate.may_serve()
    assert not gate.may_begin(FRAME)
    assert gate.may_wait, "one further request may be received meanwhile"
    replies.settle(slot, [b"answer"])
    assert gate.may_serve()
    assert gate.may_begin(OTHER_FRAME)


def test_requests_of_another_broker_overlap_with_any(gate: ServingGate, replies: ReplyQueue) -> None:
    waiting(gate, replies, pipeline=None)
    gate.is_of_broker = True
    assert gate.may_serve()
    assert gate.may_begin(OTHER_FRAME)


def test_at_most_in_flight_max_requests_are_under_way(gate: ServingGate, replies: ReplyQueue) -> None:
    slots = [waiting(gate, replies) for _ in range(2)]
    assert gate.may_serve()
    waiting(gate, replies)
    assert not gate.may_serve()
    assert not gate.may_wait, "only a single request is waited behind"
    replies.settle(slots[0], None)
    assert gate.may_serve()


def test_requests_that_keep_a_mebibyte_of_frames_are_waited_for(
    gate: ServingGate, replies: ReplyQueue
) -> None:
    slot = waiting(gate, replies)
    replies.park(slot, PARKED_BYTES - 1)
    assert gate.may_serve()
    replies.park(waiting(gate, replies), 1)
    assert not gate.may_serve()


def test_a_held_reply_shuts_the_gate_also_for_its_own_pipeline(
    gate: ServingGate, replies: ReplyQueue
) -> None:
    gate.held = waiting(gate, replies)
    assert not gate.may_serve()
    assert not gate.may_wait
    gate.held = None
    assert gate.may_serve()


async def test_the_longest_of_several_mutes_counts_and_is_followed_by_one_call(gate: ServingGate) -> None:
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    calls: list[str] = []

    def open_gate() -> None:
        calls.append("open" if gate.may_serve() else "shut")
        opened.set_result(None)

    gate.mute_for(0.001, lambda: calls.append("too early"))
    gate.mute_for(0.02, open_gate)
    gate.mute_for(0.001, lambda: calls.append("too short"))
    assert not gate.may_serve()
    await opened
    assert calls == ["open"]


async def test_a_connection_with_much_work_waits_for_its_turn(gate: ServingGate) -> None:
    opened = asyncio.Event()
    gate.queue(opened.set)
    assert not gate.may_serve()
    await opened.wait()
    assert gate.may_serve()


async def test_a_closed_gate_calls_no_one(gate: ServingGate) -> None:
    calls: list[str] = []
    gate.mute_for(0.0, lambda: calls.append("muted"))
    gate.queue(lambda: calls.append("queued"))
    gate.close()
    for _ in range(5):
        await asyncio.sleep(0.001)
    assert calls == []
