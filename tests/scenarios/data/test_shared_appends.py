"""Many connections write to one partition in the same round of the broker's loop: one append, and an answer for each."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kit.append_sizes import append_sizes
from tests.kit.requests import batch_of, produce_request
from tests.kit.waiting import until
from tests.kit.wire import Wire
from tests.scenarios.one_broker import Scene

from odradek.model.errors import ErrorCode
from odradek.net.outgoing import Outgoing
from odradek.records import Codec, engine
from odradek.runtime.turns import Turn

pytestmark = pytest.mark.skipif(
    engine.compiled() is None, reason="without a compiler Produce has the general way alone"
)
PRODUCER = 2**40


@pytest.fixture
def group_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each append of a leader had."""
    return append_sizes(monkeypatch)


@pytest.fixture
async def wires(scene: Scene) -> list[Wire]:
    """Connections to a broker with topic t. The broker has seen that its rounds bring several requests."""
    await scene.start()
    wires = [await scene.connect() for _ in range(10)]
    await wires[0].create("t", 2)
    for _ in range(8):
        await in_one_round(wires, [batch_of([b"-"]) for _ in wires], partition=1)
    return wires


async def in_one_round(wires: list[Wire], records: list[Any], **how: Any) -> list[Any]:
    """Sends one batch on each connection before the broker, on this loop, reads any; returns the partitions' responses."""
    for wire, batch in zip(wires, records, strict=True):
        wire.ask_later(produce_request("t", batch, **how), 9)
    return [(await wire.response()).responses[0].partition_responses[0] for wire in wires]


@pytest.mark.parametrize("acks", [1, -1])
async def test_each_connection_is_answered_with_the_offset_of_its_own_batch(
    wires: list[Wire], group_sizes: list[int], acks: int
) -> None:
    sent = [[b"%d" % number, b"x"] for number in range(10)]
    answers = await in_one_round(wires, [batch_of(pair) for pair in sent], acks=acks)
    assert max(group_sizes) > 1
    assert sorted(appended.base_offset for appended in answers) == list(range(0, 20, 2))
    records: list[bytes | None] = await until(
        lambda: wires[0].values("t"), holds=lambda values: len(values) == 20
    )
    for appended, pair in zip(answers, sent, strict=True):
        assert records[appended.base_offset : appended.base_offset + 2] == pair


async def test_a_batch_that_is_refused_harms_no_other_of_its_round(wires: list[Wire]) -> None:
    start = batch_of([b"a"], producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
    await in_one_round(wires[:1], [start])
    records = [batch_of([b"%d" % number]) for number in range(10)]
    records[4] = batch_of([b"gap"], producer_id=PRODUCER, producer_epoch=0, base_sequence=7)
    answers = await in_one_round(wires, records)
    codes = [appended.error_code for appended in answers]
    assert codes[4] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answers[4].base_offset == -1
    assert codes[:4] + codes[5:] == [ErrorCode.NONE] * 9
    wanted = {b"a", *(b"%d" % number for number in range(10) if number != 4)}
    values = await wires[0].values("t")
    assert (len(values), set(values)) == (10, wanted)


async def test_idempotent_producers_write_once_however_often_they_send(wires: list[Wire]) -> None:
    def batch(number: int, sequence: int) -> bytearray:
        value = b"%d-%d" % (number, sequence)
        return batch_of([value], producer_id=PRODUCER + number, producer_epoch=0, base_sequence=sequence)

    first = await in_one_round(wires, [batch(number, 0) for number in range(10)])
    mixed = await in_one_round(wires, [batch(number, number % 2) for number in range(10)])
    assert [appended.error_code for appended in first + mixed] == [ErrorCode.NONE] * 20
    assert [appended.base_offset for appended in mixed[::2]] == [
        appended.base_offset for appended in first[::2]
    ]
    assert len(await wires[0].values("t")) == 15


async def test_what_one_connection_sends_is_written_in_its_order_in_whichever_way(wires: list[Wire]) -> None:
    wire = wires[0]
    for number in range(60):
        codec = Codec.GZIP if number % 7 == 3 else Codec.NONE
        request = produce_request("t", batch_of([b"%d" % number], codec=codec), acks=(0, 1, -1)[number % 3])
        wire.ask_later(request, 9)
        if number % 3 == 0:
            wire.expect_no_response()
    answers = [(await wire.response()).responses[0].partition_responses[0] for _ in range(40)]
    assert [appended.base_offset for appended in answers] == [number for number in range(60) if number % 3]
    assert await wire.values("t") == [b"%d" % number for number in range(60)]


@pytest.mark.parametrize("acks", [1, -1])
async def test_the_answers_to_what_a_connection_sent_at_once_leave_together(
    wires: list[Wire], monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    sizes: list[int] = []
    real = Outgoing.write

    def write(self: Outgoing, chunks: Any, total_bytes: int) -> None:
        sizes.append(total_bytes)
        real(self, chunks, total_bytes)

    monkeypatch.setattr(Outgoing, "write", write)
    # On a slow machine the requests would be served in several turns.
    monkeypatch.setattr(Turn, "is_over", False)
    for number in range(10):
        wires[0].ask_later(produce_request("t", batch_of([b"%d" % number]), acks=acks), 9)
    answers = [(await wires[0].response()).responses[0].partition_responses[0] for _ in range(10)]
    assert [appended.base_offset for appended in answers] == list(range(10))
    assert sizes == [sum(sizes)]


async def test_a_client_that_leaves_before_its_answer_disturbs_no_other(
    wires: list[Wire], scene: Scene
) -> None:
    leaver = await scene.connect()
    leaver.ask_later(produce_request("t", batch_of([b"left"])), 9)
    answers = await in_one_round(wires, [batch_of([b"stays"]) for _ in wires])
    leaver.abandon()
    scene.forget(leaver)
    assert [appended.error_code for appended in answers] == [ErrorCode.NONE] * 10
    assert (await wires[0].values("t")).count(b"stays") == 10
