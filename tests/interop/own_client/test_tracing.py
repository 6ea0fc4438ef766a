"""One trace from produce to consume: a broker process and our clients send their spans to one collector."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is absent")

from benchmarks.odradek_node import BrokerDidNotStartError, OdradekNode
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from tests.otlp_collector import CollectedSpan, OtlpCollector

from odradek import (
    AsyncConsumer,
    AsyncProducer,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from odradek.client import ResourceType
from odradek.client.admin.admin import Admin
from odradek.client.observed_metrics import MetricsObserver
from odradek.client.tracing import context_of
from odradek.telemetry.trace_context import TraceContext, parsed
from odradek.testing import Cluster


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpCollector]:
    with OtlpCollector() as collector:
        yield collector


@pytest.fixture(scope="module")
def provider(collector: OtlpCollector) -> Iterator[TracerProvider]:
    """The application's own provider: there is one in a process, for good."""
    provider = TracerProvider(
        resource=Resource.create({"service.name": "shop"}), sampler=ParentBased(TraceIdRatioBased(1.0))
    )
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector.endpoint}/v1/traces")))
    trace.set_tracer_provider(provider)
    yield provider
    provider.shutdown()


@pytest.fixture(scope="module")
def node(collector: OtlpCollector) -> Iterator[OdradekNode]:
    settings = {
        "odradek.otlp.endpoint": collector.endpoint,
        "odradek.otlp.metrics.interval.ms": "200",
        "odradek.otlp.traced.records.per.second.max": "10000",
    }
    with OdradekNode(settings=settings) as node:
        yield node


@pytest.fixture
def topic(node: OdradekNode, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    with Admin(node.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
    return name


def of_trace(collector: OtlpCollector, topic: str, *steps: str) -> dict[str, CollectedSpan]:
    spans = collector.wait_for_spans(*[f"{step} {topic}" for step in steps])
    return {step: spans[f"{step} {topic}"] for step in steps}


def test_one_trace_goes_from_produce_to_consume(
    provider: TracerProvider, collector: OtlpCollector, node: OdradekNode, topic: str
) -> None:
    tracer = provider.get_tracer("shop")
    with (
        Producer(node.bootstrap, enable_opentelemetry=True, client_id="seller") as producer,
        tracer.start_as_current_span(f"order {topic}"),
    ):
        offset = producer.send(topic, b"tea", headers={"kind": "x"}).result(20).offset
    with Consumer(node.bootstrap, enable_opentelemetry=True, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        (record,) = consumer.poll(20)
        with tracer.start_as_current_span(f"process {topic}", context=context_of(record)):
            pass

    assert record.headers[0] == ("kind", b"x")
    spans = of_trace(collector, topic, "order", "send", "append", "replicate", "fetch", "receive", "process")
    order, send, append = spans["order"], spans["send"], spans["append"]
    assert {span.trace_id for span in spans.values()} == {order.trace_id}
    assert order.parent_id == ""
    assert send.parent_id == order.span_id
    assert append.parent_id == spans["fetch"].parent_id == spans["receive"].parent_id == send.span_id
    assert spans["process"].parent_id == send.span_id
    assert spans["replicate"].parent_id == append.span_id
    assert f"{parsed(dict(record.headers)['traceparent']).span_id:016x}" == send.span_id
    assert send.attributes["messaging.kafka.offset"] == append.attributes["messaging.kafka.offset"] == offset
    assert append.attributes["messaging.client.id"] == "seller"
    assert (send.service, append.service) == ("shop", "odradek-broker")
    assert send.end_ns >= spans["replicate"].end_ns - 50_000_000


async def test_the_asynchronous_clients_do_the_same(
    provider: TracerProvider, collector: OtlpCollector, node: OdradekNode, topic: str
) -> None:
    async with AsyncProducer(node.bootstrap, enable_opentelemetry=True) as producer:
        await producer.send_and_wait(topic, b"tea")
    async with AsyncConsumer(
        node.bootstrap, enable_opentelemetry=True, auto_offset_reset="earliest"
    ) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        assert len(await consumer.poll(20)) == 1
    spans = of_trace(collector, topic, "send", "append", "receive")
    assert spans["append"].parent_id == spans["receive"].parent_id == spans["send"].span_id


def test_a_followers_fetch_is_part_of_the_trace_before_replication_ends(collector: OtlpCollector) -> None:
    sent = TraceContext(trace_id=0xFEED, span_id=0xBEEF, is_sampled=True)
    settings = {"odradek.otlp.endpoint": collector.endpoint, "odradek.otlp.metrics.interval.ms": "0"}
    with Cluster(brokers=2, settings=settings) as cluster:
        with Admin(cluster.address) as admin:
            admin.create_topics([NewTopic("copied", partitions=1, replication_factor=2)])
        with Producer(cluster.address, acks="all") as producer:
            producer.send("copied", b"x", headers={"traceparent": sent.header}).result(20)
        spans = of_trace(collector, "copied", "append", "replicate", "fetch")
    append, replicate, fetch = spans["append"], spans["replicate"], spans["fetch"]
    assert append.trace_id == fetch.trace_id == f"{sent.trace_id:032x}"
    assert append.parent_id == fetch.parent_id == f"{sent.span_id:016x}"
    assert fetch.attributes["odradek.fetch.by"] == "replica"
    assert fetch.attributes["odradek.broker.id"] == append.attributes["odradek.broker.id"], (
        "the leader makes all"
    )
    assert fetch.end_ns <= replicate.end_ns, "the record is on both disks after it was fetched"


def test_a_share_consumer_takes_part_in_the_trace(
    provider: TracerProvider, collector: OtlpCollector, node: OdradekNode, topic: str
) -> None:
    group = f"share-{topic}"
    with Admin(node.bootstrap) as admin:
        resource = ConfigResource(ResourceType.GROUP, group)
        admin.alter_configs({resource: {"share.auto.offset.reset": "earliest"}})
    with Producer(node.bootstrap, enable_opentelemetry=True) as producer:
        producer.send(topic, b"tea").result(20)
    with ShareConsumer(node.bootstrap, group_id=group, enable_opentelemetry=True) as consumer:
        consumer.subscribe(topic)
        records = []
        while not records:
            records = consumer.poll(20)
    spans = of_trace(collector, topic, "send", "fetch", "receive")
    assert spans["receive"].parent_id == spans["fetch"].parent_id == spans["send"].span_id
    assert spans["fetch"].attributes["odradek.fetch.by"] == "share"
    assert spans["receive"].attributes["messaging.consumer.group.name"] == group


def test_a_frame_has_one_span_that_ends_when_all_its_batches_are_acknowledged(
    provider: TracerProvider, collector: OtlpCollector, node: OdradekNode, topic: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="PyArrow is absent")
    rows = pyarrow.record_batch({"value": [b"x" * 100] * 2_000})
    with (
        Producer(node.bootstrap, enable_opentelemetry=True, batch_size=20_000) as producer,
        provider.get_tracer("shop").start_as_current_span(f"order {topic}"),
    ):
        producer.send_arrow(topic, rows)
        producer.flush(20)
    spans = of_trace(collector, topic, "order", "send")
    assert spans["send"].parent_id == spans["order"].span_id
    assert spans["send"].attributes["messaging.batch.message_count"] == 2_000
    assert not spans["send"].is_error
    with Consumer(node.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.poll(20)[0].headers == (), "rows keep their headers"


async def test_a_frame_of_which_a_batch_fails_has_a_span_with_the_error(
    provider: TracerProvider, collector: OtlpCollector, node: OdradekNode, topic: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="PyArrow is absent")
    with Admin(node.bootstrap) as admin:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin.alter_configs({resource: {"max.message.bytes": "1000"}})
    rows = pyarrow.record_batch({"value": [b"x" * 10, b"x" * 5_000]})
    async with AsyncProducer(node.bootstrap, enable_opentelemetry=True) as producer:
        await producer.send_arrow(topic, rows)
        with pytest.raises(KafkaError):
            await producer.flush(20)
    assert of_trace(collector, topic, "send")["send"].is_error


def test_a_record_that_is_sent_on_belongs_to_the_present_span_alone(
    provider: TracerProvider, node: OdradekNode, topic: str
) -> None:
    old = b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"
    with (
        Producer(node.bootstrap, enable_opentelemetry=True) as producer,
        provider.get_tracer("shop").start_as_current_span("now") as now,
    ):
        producer.send(topic, b"x", headers=[("traceparent", old), ("k", b"v")]).result(20)
    with Consumer(node.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        (record,) = consumer.poll(20)
    assert [name for name, _ in record.headers] == ["k", "traceparent"]
    assert parsed(record.headers[1][1]).trace_id == now.get_span_context().trace_id


def test_a_record_that_cannot_be_sent_ends_its_span_with_the_reason(
    provider: TracerProvider, collector: OtlpCollector, node: OdradekNode, topic: str
) -> None:
    with (
        Producer(node.bootstrap, enable_opentelemetry=True, max_request_size=2_000) as producer,
        pytest.raises(KafkaError),
    ):
        producer.send(topic, b"x" * 3_000)
    span = of_trace(collector, topic, "send")["send"]
    assert span.is_error
    assert "2000" in span.error.replace(",", "")


def test_a_failure_that_a_span_has_seen_is_still_raised_by_flush(
    provider: TracerProvider, collector: OtlpCollector, node: OdradekNode, topic: str
) -> None:
    with Admin(node.bootstrap) as admin:
        admin.create_topics([NewTopic(f"{topic}-c", partitions=1, configs={"cleanup.policy": "compact"})])
    producer = Producer(node.bootstrap, enable_opentelemetry=True)
    producer.send(f"{topic}-c", b"a record without a key")
    with pytest.raises(KafkaError):
        producer.flush(20)
    producer.close()
    assert of_trace(collector, f"{topic}-c", "send")["send"].is_error


def test_what_the_application_does_not_sample_is_recorded_nowhere(
    collector: OtlpCollector, provider: TracerProvider, node: OdradekNode, topic: str
) -> None:
    tracer = TracerProvider(sampler=ALWAYS_OFF).get_tracer("shop")
    with (
        Producer(node.bootstrap, enable_opentelemetry=True) as producer,
        tracer.start_as_current_span("not sampled"),
    ):
        producer.send(topic, b"x").result(20)
        with provider.get_tracer("shop").start_as_current_span("root", context=trace.Context()):
            producer.send(topic, b"y").result(20)
    spans = of_trace(collector, topic, "send", "append")
    assert [span.name for span in collector.spans()].count(f"append {topic}") == 1
    assert spans["append"].attributes["messaging.kafka.offset"] == 1


def test_the_brokers_metrics_arrive(collector: OtlpCollector, node: OdradekNode, topic: str) -> None:
    with Producer(node.bootstrap) as producer:
        producer.send(topic, b"x").result(20)

    def has_arrived() -> bool:
        metric = collector.metrics().get("kafka_server_brokertopicmetrics_messagesin_total")
        return metric is not None and any(
            pair.value.string_value == topic and point.as_int == 1
            for point in metric.sum.data_points
            for pair in point.attributes
        )

    collector.eventually(has_arrived)
    assert collector.metrics()["odradek_request_seconds"].histogram.data_points
    assert "process_resident_memory_bytes" in collector.metrics()


def test_a_collector_that_is_away_costs_a_line_in_the_log(topic: str) -> None:
    settings = {"odradek.otlp.endpoint": "http://127.0.0.1:9", "odradek.otlp.metrics.interval.ms": "100"}
    with OdradekNode(settings=settings) as away:
        with Producer(away.bootstrap) as producer:
            assert producer.send(topic, b"x").result(20).offset == 0
        assert away.terminate() == 0


def test_an_endpoint_that_is_no_address_stops_the_start() -> None:
    for endpoint in ("localhost:4318", "ftp://localhost", "http://user:word@localhost:4318"):
        node = OdradekNode(settings={"odradek.otlp.endpoint": endpoint})
        with pytest.raises(BrokerDidNotStartError, match=r"odradek\.otlp\.endpoint is not allowed"):
            node.start()


def test_metrics_of_clients_are_instruments_of_the_application(node: OdradekNode, topic: str) -> None:
    reader = InMemoryMetricReader()
    observer = MetricsObserver(MeterProvider(metric_readers=[reader]))
    with Producer(node.bootstrap, client_id="seller") as producer:
        observer.add(producer)
        for _ in range(3):
            producer.send(topic, b"x").result(20)
        sent = {
            metric.name: metric
            for of_resource in reader.get_metrics_data().resource_metrics
            for of_scope in of_resource.scope_metrics
            for metric in of_scope.metrics
        }
    (point,) = sent["org.apache.kafka.producer.record.send.total"].data.data_points
    assert point.value == 3
    assert point.attributes == {"client.id": "seller"}
    assert sent["org.apache.kafka.producer.connection.count"].data.data_points[0].value >= 1
    logging.getLogger(__name__).debug("the observer lives as long as the test: %s", observer)
