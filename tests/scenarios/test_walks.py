"""The tables of ARCHITECTURE.md that lead through a request: a broker serves it by these calls, in this order."""

from __future__ import annotations

import ast
import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
from tests.kit.requests import batch_of, produce_request
from tests.kit.waiting import until
from tests.kit.wire import ANSWER_SECONDS, Wire
from tests.scenarios.one_broker import Scene
from tests.scenarios.transactions.transactional_producer import EPOCHS, TransactionalProducer
from tests.scenarios.walks import ROOT, Step, first_not_reached, walk_of

from odradek.broker.app import Broker
from odradek.cluster.image import TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.model.errors import ErrorCode
from odradek.model.ids import BrokerId
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.records import Codec

SOURCES: Final = ROOT / "src" / "odradek"
FILES_MAX: Final = {
    "Produce": 20,
    "Fetch": 20,
    "JoinGroup": 22,
    "EndTxn": 22,
    "Failover": 22,
    "CREATE TABLE AS SELECT": 20,
    "A grouped stream": 20,
    "A batch of the exactly-once sink": 20,
    "A batch of the archive": 20,
}
"""The headings of all tables; tests/spark/walks compares those of the pipelines."""
_WAITS: Final = ("broker/fetch/delayed_fetch.py", "ConsumerWaiting.__init__")


class Recorder:
    """The broker's calls on all threads that begin after it, while it records."""

    def __init__(self) -> None:
        self.calls: list[Step] = []
        self._is_on = False

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self._is_on:
            _, inside, file = frame.f_code.co_filename.partition("/src/odradek/")
            if inside:
                self.calls.append(Step(file, frame.f_code.co_qualname))

    @contextmanager
    def of_new_threads(self) -> Iterator[None]:
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]  # typeshed does not know that this ends it

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._is_on = True
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._is_on = False

    def first_not_reached(self, walk: list[Step]) -> Step | None:
        """The first step that no call takes behind the call of the step before it."""
        return first_not_reached(walk, self.calls)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    calls = Recorder()
    with calls.of_new_threads():
        yield calls


@pytest.mark.parametrize("heading", FILES_MAX)
def test_a_walk_is_short_and_names_what_there_is(heading: str) -> None:
    walk = walk_of(heading)
    assert 10 < len(walk) <= FILES_MAX[heading]
    assert len({step.file for step in walk}) == len(walk), "a file comes twice"
    for file, function in walk:
        body: list[ast.stmt] = ast.parse((SOURCES / file).read_text(encoding="utf-8")).body
        for name in function.split("."):
            definitions = [node for node in body if getattr(node, "name", None) == name]
            assert definitions, f"{file} does not define {function}"
            body = getattr(definitions[0], "body", [])


async def test_a_produce_request_takes_the_way_that_is_described(recorder: Recorder, scene: Scene) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t")
    compressed = produce_request(
        "t", batch_of([b"a"], codec=Codec.GZIP)
    )  # an uncompressed one has a shorter way
    with recorder.recording():
        await wire.ask(compressed, 9)
    assert recorder.first_not_reached(walk_of("Produce")) is None


async def test_a_fetch_request_takes_the_way_that_is_described(recorder: Recorder, scene: Scene) -> None:
    await scene.start()
    wire, producer = await scene.connect(), await scene.connect()
    await wire.create("t")
    await producer.produce("t", [b"a", b"b", b"c"])
    with recorder.recording():
        await wire.fetch("t", 1)
        waiting = asyncio.ensure_future(wire.fetch("t", 3, max_wait_ms=20_000))
        await until(lambda: _WAITS in recorder.calls)
        await producer.produce("t", [b"d"])
        await waiting
    assert recorder.first_not_reached(walk_of("Fetch")) is None


async def coordinator_found(wire: Wire, key_type: int, key: str) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    await until(
        lambda: wire.ask(request, 4),
        holds=lambda response: not response.coordinators[0].error_code,
    )


async def test_a_join_group_request_takes_the_way_that_is_described(recorder: Recorder, scene: Scene) -> None:
    await scene.start(offsets_topic_num_partitions="1", group_initial_rebalance_delay_ms="20")
    wire = await scene.connect()
    await coordinator_found(wire, 0, "g")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(10))],
    )
    named = await until(
        lambda: wire.ask(request, 9),
        holds=lambda named: named.error_code == ErrorCode.MEMBER_ID_REQUIRED,
    )
    with recorder.recording():
        joined = await wire.ask(request.replace(member_id=named.member_id), 9)
    assert joined.generation_id == 1
    assert recorder.first_not_reached(walk_of("JoinGroup")) is None


async def test_an_end_txn_request_takes_the_way_that_is_described(recorder: Recorder, scene: Scene) -> None:
    broker = await scene.start(transaction_state_log_num_partitions="1")
    wire = await scene.connect()
    await wire.create("t")
    await coordinator_found(wire, 1, "x")
    producer = TransactionalProducer(wire, batch_of, "x", EPOCHS)
    assert await producer.init() is ErrorCode.NONE
    assert await producer.add("t", 0) == [ErrorCode.NONE]
    assert await producer.send("t", b"a") is ErrorCode.NONE
    partition = broker.context.replicas.leader("t", 0)
    with recorder.recording():
        assert await producer.end(commit=True) is ErrorCode.NONE
        await until(lambda: partition.last_stable_offset >= 2)
    assert recorder.first_not_reached(walk_of("EndTxn")) is None


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[list[Scene]]:
    """Three brokers of one cluster, broker 1 being the controller."""
    (tmp_path / "registry").mkdir()
    scenes = [Scene(tmp_path / str(number)) for number in (1, 2, 3)]
    try:
        for number, scene in enumerate(scenes, start=1):
            scene.directory.mkdir()
            await scene.start(node_id=str(number), odradek_registry_dir=str(tmp_path / "registry"))
        yield scenes
    finally:
        for scene in reversed(scenes):
            await scene.stop()


async def test_a_failover_takes_the_way_that_is_described(recorder: Recorder, three: list[Scene]) -> None:
    first, second, third = (scene.broker for scene in three)
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.context.cluster.leads
    wanted = TopicSpec(name="t", partition_count=6, replication_factor=3, configs={})
    (made,) = await first.context.cluster.create_topics([wanted])
    assert isinstance(made, TopicImage)
    dead, heir = next(
        (partition.leader, partition.isr[1])
        for partition in made.partitions
        if {partition.leader, partition.isr[1]} == {BrokerId(2), BrokerId(3)}
    )

    def is_led_by(broker: Broker, leader: BrokerId) -> bool:
        topic = broker.context.image.topics.get("t")
        return topic is not None and any(partition.leader == leader for partition in topic.partitions)

    brokers = [first, second, third]
    async with asyncio.timeout(ANSWER_SECONDS):
        while not all(is_led_by(broker, dead) for broker in brokers):
            await asyncio.sleep(0.01)
        with recorder.recording():
            await brokers[dead - 1].stop(drain_seconds=0)
            while (
                is_led_by(brokers[heir - 1], dead)
                or recorder.first_not_reached(walk_of("Failover")) is not None
            ):
                await asyncio.sleep(0.1)
