"""Spans of a broker: which records become spans, whose children they are, and what the bounds leave out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit.requests import fetch_request, produce_request
from tests.kit.waiting import until
from tests.kit.wire import Wire
from tests.scenarios.one_broker import Scene

from odradek.broker.app import Broker
from odradek.broker.instruments.record_traces import RecordTraces
from odradek.config.broker import BrokerConfig
from odradek.records import BatchBuilder, Codec
from odradek.telemetry.spans import FinishedSpan
from odradek.telemetry.trace_context import TraceContext


class SpanList:
    """A `SpanSink` that keeps what it gets."""

    def __init__(self) -> None:
        self.spans: list[FinishedSpan] = []

    def add(self, span: FinishedSpan) -> None:
        self.spans.append(span)

    def of(self, step: str) -> list[FinishedSpan]:
        return [span for span in self.spans if span.name.split(" ")[0] == step]

    async def wait_for(self, step: str, count: int) -> list[FinishedSpan]:
        await until(lambda: len(self.of(step)) >= count)
        return self.of(step)


def context(number: int, *, is_sampled: bool = True) -> TraceContext:
    return TraceContext(trace_id=1_000 + number, span_id=2_000 + number, is_sampled=is_sampled)


def traced_batch(*contexts: TraceContext | None, codec: Codec = Codec.NONE, size: int = 10) -> bytearray:
    builder = BatchBuilder(codec)
    for traced in contexts:
        headers = () if traced is None else (("traceparent", traced.header),)
        builder.append(1_700_000_000_000, b"k", b"v" * size, headers)
    return builder.build()


@pytest.fixture
def sink() -> SpanList:
    return SpanList()


class SteppedClock:
    """A clock that stands still until the test moves it: what may be spent each second depends on no machine then."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return int(self.seconds * 1000)


class TracingScene(Scene):
    """A scene whose broker makes spans."""

    def __init__(self, directory: Path, sink: SpanList) -> None:
        super().__init__(directory)
        self.sink = sink
        self.clock_of_traces: SteppedClock | None = None
        """The runtime's clock unless the test sets one before it starts the broker."""

    def new_broker(self, config: BrokerConfig) -> Broker:
        broker = super().new_broker(config)
        traced = replace(self.runtime, clock=self.clock_of_traces or self.runtime.clock)
        broker.traces = RecordTraces(self.sink, traced, config.otlp, broker_id=1)
        return broker


@pytest.fixture
async def scene(tmp_path: Path, sink: SpanList) -> Any:
    new_scene = TracingScene(tmp_path, sink)
    try:
        yield new_scene
    finally:
        await new_scene.stop()


async def produce(wire: Wire, records: bytearray, acks: int = -1) -> int:
    response = await wire.ask(produce_request("flights", records, acks=acks), 9)
    data = response.responses[0].partition_responses[0]
    assert data.error_code == 0
    return data.base_offset  # type: ignore[no-any-return]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD, Codec.GZIP])
async def test_a_records_way_through_a_broker_is_its_clients_children(
    wire: Wire, sink: SpanList, codec: Codec
) -> None:
    await wire.create("flights")
    await produce(wire, traced_batch(None, None))
    base_offset = await produce(wire, traced_batch(None, context(1), None, context(2), codec=codec))
    await sink.wait_for("replicate", 2)
    await wire.fetch("flights", 0)

    for number, offset in ((1, base_offset + 1), (2, base_offset + 3)):
        spans = {span.name: span for span in sink.spans if span.context.trace_id == 1_000 + number}
        append, replicate, fetch = (spans[f"{step} flights"] for step in ("append", "replicate", "fetch"))
        assert append.parent == fetch.parent == context(number)
        assert replicate.parent == append.context
        assert len({append.context.span_id, replicate.context.span_id, fetch.context.span_id}) == 3
        assert append.start_ns <= append.end_ns <= replicate.start_ns <= replicate.end_ns
        assert append.end_ns <= fetch.start_ns <= fetch.end_ns
        assert append.attributes["messaging.kafka.offset"] == offset
        assert fetch.attributes["odradek.fetch.by"] == "consumer"
        assert append.attributes["messaging.client.id"] == "test"
        assert [span.error for span in spans.values()] == [None] * 3
    assert len(sink.spans) == 6


async def test_a_long_poll_begins_for_a_record_when_it_is_appended(
    scene: Scene, wire: Wire, sink: SpanList
) -> None:
    await wire.create("flights")
    wire.ask_later(fetch_request("flights", 0, max_wait_ms=10_000), 11)
    await asyncio.sleep(0.05)
    await produce(await scene.connect(), traced_batch(context(1)))
    response = await wire.response()

    assert response.responses[0].partitions[0].records
    (fetch,) = sink.of("fetch")
    (append,) = sink.of("append")
    assert fetch.start_ns == append.end_ns


async def test_what_is_not_sampled_or_no_context_becomes_no_span(wire: Wire, sink: SpanList) -> None:
    await wire.create("flights")
    builder = BatchBuilder()
    for value in (context(1, is_sampled=False).header, b"00-nothing", None):
        builder.append(1_700_000_000_000, None, b"traceparent", (("traceparent", value),))
    await produce(wire, builder.build())
    await wire.fetch("flights", 0)
    assert sink.spans == []


async def test_every_way_to_acknowledge_is_traced(wire: Wire, sink: SpanList) -> None:
    await wire.create("flights")
    await produce(wire, traced_batch(context(1)), acks=1)
    await sink.wait_for("replicate", 1)
    assert [span.name for span in sink.spans] == ["append flights", "replicate flights"]


async def test_a_fetch_is_traced_for_the_records_that_it_answers(wire: Wire, sink: SpanList) -> None:
    await wire.create("flights")
    for number in range(3):
        await produce(wire, traced_batch(context(number)))
    await wire.fetch("flights", 2)
    assert [span.parent for span in sink.of("fetch")] == [context(2)]


async def test_a_record_that_is_fetched_again_and_again_makes_a_bounded_number_of_spans(
    scene: TracingScene, sink: SpanList
) -> None:
    broker = await scene.start(odradek_otlp_traced_records_per_second_max="1000")
    wire = await scene.connect()
    await wire.create("flights")
    await produce(wire, traced_batch(context(1)))
    for _ in range(30):
        await wire.fetch("flights", 0)
    assert len(sink.of("fetch")) == 20
    assert broker.traces.left_out_count == 10


async def test_records_beyond_the_rate_are_counted(scene: TracingScene, sink: SpanList) -> None:
    broker = await scene.start(odradek_otlp_traced_records_per_second_max="5")
    wire = await scene.connect()
    await wire.create("flights")
    await produce(wire, traced_batch(*[context(number) for number in range(500)]))
    assert 5 <= len(sink.of("append")) < 50
    assert len(sink.of("append")) + broker.traces.left_out_count == 500


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_large_batches_are_not_looked_at(scene: TracingScene, sink: SpanList, codec: Codec) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    await wire.create("flights")
    await produce(wire, traced_batch(context(1), codec=codec, size=70_000))
    assert sink.spans == []
    assert broker.traces.unseen_count == 1


async def test_a_flood_of_batches_is_looked_at_in_part(scene: TracingScene, sink: SpanList) -> None:
    """Compressed batches, and those of many records, cost more of what may be spent."""
    scene.clock_of_traces = clock = SteppedClock()
    broker = await scene.start(odradek_otlp_traced_records_per_second_max="2")
    wire = await scene.connect()
    await wire.create("flights")
    for _ in range(10):
        await produce(wire, traced_batch(context(1), codec=Codec.ZSTD))
    assert broker.traces.unseen_count == 9
    clock.seconds += 1
    await produce(wire, traced_batch(context(1), *[None] * 5_000))
    assert broker.traces.unseen_count == 10
    assert len(sink.of("append")) == 1


async def test_a_duplicate_is_not_appended_a_second_time(wire: Wire, sink: SpanList) -> None:
    await wire.create("flights")
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, b"v", (("traceparent", context(1).header),))
    records = builder.build(producer_id=5, producer_epoch=0, base_sequence=0)
    await produce(wire, bytearray(records))
    await produce(wire, bytearray(records))
    assert len(sink.of("append")) == 1


async def test_a_deleted_topic_is_forgotten(scene: TracingScene, sink: SpanList) -> None:
    from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState

    broker = await scene.start()
    wire = await scene.connect()
    await wire.create("flights")
    await produce(wire, traced_batch(context(1)))
    partition = broker.context.replicas.leader("flights", 0)
    assert broker.traces.remembers(partition)
    await wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="flights")], timeout_ms=5_000), 6)
    del partition
    await until(lambda: not broker.traces.partition_count)
