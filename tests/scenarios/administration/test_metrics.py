"""What a broker serves on `metrics.listeners`: figures that agree with what was done, and probes that say why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text
from tests.kit.frames import read_frame
from tests.kit.requests import batch_of
from tests.kit.waiting import until
from tests.kit.wire import request_frame
from tests.scenarios.groups.test_classic_groups import Member as ClassicMember
from tests.scenarios.transactions.transactional_producer import EPOCHS, TransactionalProducer, coordinated

from odradek.broker.app import Broker
from odradek.broker.metrics.listener import MetricsListener
from odradek.broker.metrics.partition_families import PartitionFamilies
from odradek.cli.main import cli
from odradek.config.loading import load_broker_config
from odradek.model.errors import ConfigError
from odradek.model.version import __version__
from odradek.net.scrape_server import HttpPage
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.runtime.real import real_runtime
from odradek.telemetry.metrics import Histogram

SECONDS = 20
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def ask(listener: MetricsListener, path: str, accept: str = "") -> HttpPage:
    """What a scraper gets. The broker is on this test's loop, so the reader is no thread that blocks it."""
    host, port = listener.addresses[0]
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET {path} HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode())
        reply = await reader.read()
        writer.close()
        await writer.wait_closed()
    head, _, body = reply.partition(b"\r\n\r\n")
    return HttpPage(status=int(head.split(b" ")[1]), body=body)


async def scrape(listener: MetricsListener) -> Samples:
    """Every sample, by name and labels, read from both formats."""
    text = (await ask(listener, "/metrics")).body.decode()
    parse: Any = open_metrics
    families = list(parse((await ask(listener, "/metrics", "application/openmetrics-text")).body.decode()))
    names = {sample.name for family in families for sample in family.samples}
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in prometheus_text(text)
        for sample in family.samples
    }
    assert {name for name, _ in samples} == names, "both formats have the same"
    return samples


def of(samples: Samples, name: str, **texts: object) -> float:
    return samples[name, tuple(sorted((label, str(text)) for label, text in texts.items()))]


def commit(group: str, member_id: str, topic: str, index: int, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=1 if member_id else -1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


@pytest.fixture
async def listeners() -> AsyncIterator[list[MetricsListener]]:
    opened: list[MetricsListener] = []
    yield opened
    for listener in opened:
        await asyncio.to_thread(listener.close)


def listen(broker: Broker, opened: list[MetricsListener], **settings: str) -> MetricsListener:
    config, _ = load_broker_config({"metrics.listeners": "127.0.0.1:0", "log.dirs": "/nowhere", **settings})
    listener = MetricsListener(broker, config)
    listener.start()
    opened.append(listener)
    return listener


async def test_figures_of_partitions_agree_with_what_was_done(
    scene: Any, listeners: list[MetricsListener]
) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    await wire.create("flights", partitions=2)
    await wire.produce("flights", [b"a", b"b", b"c"])
    await wire.produce("flights", [b"d"])

    samples = await scrape(listen(broker, listeners))

    first = {"topic": "flights", "partition": 0}
    assert of(samples, "kafka_topic_partition_current_offset", **first) == 4
    assert of(samples, "kafka_log_log_logendoffset", **first) == 4
    assert of(samples, "kafka_topic_partition_oldest_offset", **first) == 0
    assert (
        of(samples, "kafka_log_log_size", **first)
        > of(samples, "kafka_log_log_size", topic="flights", partition=1)
        == 0
    )
    assert of(samples, "kafka_topic_partition_leader", **first) == 1
    assert of(samples, "kafka_topic_partition_in_sync_replica", **first) == 1
    assert of(samples, "kafka_topic_partition_under_replicated_partition", **first) == 0
    assert of(samples, "kafka_topic_partitions", topic="flights") == 2
    assert of(samples, "kafka_brokers") == 1
    assert of(samples, "kafka_server_replicamanager_leadercount") == 2
    assert of(samples, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert of(samples, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert of(samples, "kafka_controller_kafkacontroller_globalpartitioncount") == 2
    assert of(samples, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert of(samples, "odradek_build_info", version=__version__) == 1
    bean = "kafka_server_brokertopicmetrics_"
    assert (
        of(samples, f"{bean}messagesin_total", topic="flights") == of(samples, f"{bean}messagesin_total") == 4
    )
    written = of(samples, f"{bean}bytesin_total", topic="flights")
    assert written == of(samples, "kafka_log_log_size", **first)
    assert of(samples, f"{bean}totalproducerequests_total", topic="flights") == 2
    assert of(samples, f"{bean}bytesout_total", topic="flights") == 0
    assert of(samples, "odradek_metrics_series_left_out") == 0


async def test_figures_of_requests_agree_with_what_was_asked(
    scene: Any, listeners: list[MetricsListener]
) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    await wire.create("flights", partitions=1)
    await wire.produce("flights", [b"a", b"b"])
    read = await wire.fetch("flights", 0)
    await wire.produce("nowhere", [b"c"])
    listener = listen(broker, listeners)

    samples = await scrape(listener)

    bean = "kafka_network_requestmetrics_"
    produced = {labels: value for (name, labels), value in samples.items() if name == f"{bean}requests_total"}
    assert sum(value for labels, value in produced.items() if ("request", "Produce") in labels) == 2
    fetches = [value for labels, value in produced.items() if ("request", "Fetch") in labels]
    consumers = [value for labels, value in produced.items() if ("request", "FetchConsumer") in labels]
    assert fetches == consumers == [1]
    assert of(samples, f"{bean}totaltimems_count", request="Produce") == 2
    assert of(samples, "odradek_request_seconds_count", request="Produce") == 2
    quantile = {"request": "Produce", "quantile": "0.99"}
    assert 0 < of(samples, f"{bean}totaltimems", **quantile) <= 10_000
    assert of(samples, f"{bean}errors_total", request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    bean = "kafka_server_brokertopicmetrics_"
    assert of(samples, f"{bean}bytesout_total", topic="flights") == len(read.records)
    assert of(samples, f"{bean}totalfetchrequests_total", topic="flights") == 1
    assert (f"{bean}failedproducerequests_total", (("topic", "nowhere"),)) not in samples

    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="flights")], timeout_ms=5000)
    await wire.ask(request, 6)
    samples = await scrape(listener)
    assert (f"{bean}messagesin_total", (("topic", "flights"),)) not in samples
    assert of(samples, f"{bean}messagesin_total") == 2, "the broker's sums keep what a deleted topic had"


async def test_groups_and_their_lag_agree_with_what_was_committed(
    scene: Any, listeners: list[MetricsListener]
) -> None:
    broker = await scene.start(group_initial_rebalance_delay_ms="0")
    wire = await scene.connect()
    topic_id = (await wire.create("flights", partitions=2)).topic_id
    await wire.create("doomed", partitions=1)
    await wire.produce("flights", [b"a", b"b", b"c"])
    await wire.find_coordinator("readers")
    member = ClassicMember(wire, group="readers")
    await member.join()
    await member.sync({member.member_id: b"x"})
    wheres = [("flights", 0, 1), ("flights", 1, 0), ("doomed", 0, 0)]
    for topic, index, offset in wheres:
        await wire.ask(commit(member.group, member.member_id, topic, index, offset), 8)
    await wire.ask(commit('quoted "group"', "", "flights", 0, 9), 8)
    listener = listen(broker, listeners)
    await scrape(listener)
    await wire.produce("flights", [b"d"])

    samples = await scrape(listener)

    first = {"consumergroup": "readers", "topic": "flights", "partition": 0}
    both = {"consumergroup": "readers", "topic": "flights"}
    assert of(samples, "kafka_consumergroup_members", consumergroup="readers") == 1
    assert of(samples, "kafka_consumergroup_members", consumergroup='quoted "group"') == 0
    assert of(samples, "kafka_consumergroup_current_offset", **first) == 1
    assert of(samples, "kafka_consumergroup_current_offset_sum", **both) == 1
    assert of(samples, "kafka_consumergroup_lag", **first) == 3
    assert of(samples, "kafka_consumergroup_lag", **both, partition=1) == 0
    assert of(samples, "kafka_consumergroup_lag_sum", **both) == 3
    assert 0 < of(samples, "odradek_consumergroup_lag_seconds", **first) < 600
    assert of(samples, "odradek_consumergroup_lag_seconds", **both, partition=1) == 0
    lag_s_max = of(samples, "odradek_consumergroup_lag_seconds_max", consumergroup="readers")
    assert lag_s_max == of(samples, "odradek_consumergroup_lag_seconds", **first)
    beyond = {"consumergroup": 'quoted "group"', "topic": "flights"}
    assert of(samples, "kafka_consumergroup_lag_sum", **beyond) == 0, "an offset beyond the end is no lag"
    assert of(samples, "odradek_consumergroup_lag_unknown") == 0
    assert of(samples, "kafka_coordinator_group_groupmetadatamanager_numgroups") >= 1
    assert of(samples, "kafka_coordinator_group_groupmetadatamanager_numgroupsstable") == 1
    assert of(samples, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == 4
    assert of(samples, "kafka_server_group_coordinator_metrics_consumer_group_count", state="stable") == 0

    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="flights")], timeout_ms=5000)
    await wire.ask(request, 6)
    again = await wire.create("flights", partitions=2)
    assert again.topic_id != topic_id
    samples = await scrape(listener)
    assert not [labels for name, labels in samples if "_lag" in name and ("topic", "flights") in labels]
    assert of(samples, "kafka_consumergroup_members", consumergroup="readers") == 1


async def test_slow_requests_are_shown_with_their_stages(
    scene: Any, listeners: list[MetricsListener]
) -> None:
    broker = await scene.start(odradek_slow_request_ms="1")
    wire = await scene.connect()
    await wire.create("flights", partitions=8)  # which takes more than a millisecond
    listener = listen(broker, listeners)

    shown = json.loads((await ask(listener, "/slow")).body)

    (create,) = [request for request in shown if request["request"] == "CreateTopics"]
    assert (create["client_id"], create["version"]) == ("test", 7)
    stages = ("queued_ms", "handled_ms", "waited_ms", "response_queued_ms", "sent_ms")
    assert create["total_ms"] == pytest.approx(sum(create[stage] for stage in stages), abs=0.01)
    host, port = listener.addresses[0]
    run = await asyncio.to_thread(
        CliRunner().invoke, cli, ["broker", "slow", "--metrics", f"{host}:{port}", "--json"]
    )
    assert create in json.loads(run.output)
    run = await asyncio.to_thread(CliRunner().invoke, cli, ["broker", "slow", "--metrics", f"{host}:{port}"])
    assert "CreateTopics v7" in run.output


async def test_figures_of_the_server_agree_with_what_was_done(
    scene: Any, listeners: list[MetricsListener]
) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    other = await scene.connect()
    await wire.create("flights", partitions=1)
    await wire.produce("flights", [b"a"])
    await other.ask(MetadataRequest(topics=None), 12)
    await other.close()
    scene.forget(other)
    await until(lambda: broker.server.connection_count <= 1)
    listener = listen(broker, listeners)

    samples = await scrape(listener)

    sockets = "kafka_server_socket_server_metrics_"
    assert of(samples, f"{sockets}connection_count", listener="PLAINTEXT") == 1
    assert of(samples, f"{sockets}connection_creation_total", listener="PLAINTEXT") == 2
    assert of(samples, f"{sockets}connection_close_total", listener="PLAINTEXT") == 1
    (directory,) = broker.context.replicas.directories.all()
    flushes = of(samples, "odradek_log_flush_seconds_count", directory=directory.path)
    assert flushes == of(samples, "kafka_log_logflushstats_logflushrateandtimems_count") >= 1
    assert of(samples, "odradek_client_requests", client_id="test") >= 2
    assert of(samples, "odradek_clients") == 1
    for name in ("requestqueuetimems", "localtimems", "remotetimems", "responsesendtimems"):
        shown = of(samples, f"kafka_network_requestmetrics_{name}", request="Produce", quantile="0.99")
        assert shown >= 0
    assert of(samples, "odradek_request_stage_seconds_count", request="Produce", stage="waited") == 1
    assert of(samples, "odradek_request_stage_seconds_count", request="Produce", stage="fsync") == 1
    assert not any(("stage", "replicated") in texts for _, texts in samples), "no follower was waited for"
    assert of(samples, "odradek_client_busy_seconds", client_id="test") > 0
    for direction in ("in", "out"):
        assert of(samples, "odradek_client_in_flight_bytes", client_id="test", direction=direction) == 0
    assert of(samples, "odradek_request_stage_seconds_count", request="Produce", stage="sent") == 1
    assert of(samples, "kafka_server_kafkaserver_brokerstate") == 3
    assert 0 <= of(samples, "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent") <= 1
    assert of(samples, "kafka_cluster_partition_atminisr", topic="flights", partition=0) == 1
    assert (
        of(samples, "kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation="Produce") == 0
    )


async def test_long_ids_of_clients_are_shown_in_part_and_gone_with_their_connections(
    scene: Any, listeners: list[MetricsListener]
) -> None:
    broker = await scene.start()
    listener = listen(broker, listeners)
    writers = []
    for number in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        name = 'a"\n\\' * 5_000 + str(number)
        frame = request_frame(MetadataRequest(topics=None), 12, client_id=name)
        writer.write(frame)
        await read_frame(reader)
        writer.write(frame[: len(frame) // 2])  # the rest never comes
        writers.append(writer)

    def half() -> bool:
        return bool(sum(connection.load.request_bytes > 0 for connection in broker.server.connections) == 3)

    await until(half)
    samples = await scrape(listener)
    shown = {dict(texts).get("client_id", "") for name, texts in samples if name.startswith("odradek_client")}
    assert max(map(len, shown)) <= 255
    assert of(samples, "odradek_clients") == 1
    received = [
        count
        for (name, texts), count in samples.items()
        if name == "odradek_client_in_flight_bytes" and ("direction", "in") in texts
    ]
    assert len(received) == 1
    assert received[0] > 30_000, "of three connections together"
    for writer in writers:
        writer.transport.abort()
    await until(lambda: not broker.server.connections)
    after = await scrape(listener)
    assert of(after, "odradek_clients") == 0
    assert not any(name == "odradek_client_in_flight_bytes" for name, _ in after)


async def test_transactions_are_shown_by_state_and_age(scene: Any, listeners: list[MetricsListener]) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    await wire.create("flights", partitions=1)
    await coordinated(wire)
    producer = TransactionalProducer(wire, batch_of, "writer", EPOCHS)
    assert await producer.init() == 0
    await producer.add("flights", 0)
    assert await producer.send("flights", b"a") == 0
    listener = listen(broker, listeners)

    samples = await scrape(listener)

    assert of(samples, "odradek_transactional_ids", state="Ongoing") == 1
    longest = of(samples, "odradek_transaction_open_seconds_max")
    assert 0 <= longest <= 60
    (open_one,) = [texts for name, texts in samples if name == "odradek_transaction_open_seconds"]
    assert open_one[0][0] == "transactional_id"
    assert of(samples, "kafka_server_replicamanager_produceridcount") >= 1
    assert of(samples, "kafka_server_replicamanager_partitionswithlatetransactionscount") == 0
    timeout_ms, buffer_ms = broker.context.config.transaction.max_timeout_ms, 300_000
    assert late_partitions(broker, after_ms=timeout_ms + buffer_ms - 60_000) == 0
    assert late_partitions(broker, after_ms=timeout_ms + buffer_ms + 1) == 1
    assert await producer.end(commit=True) == 0
    await until(lambda: not late_partitions(broker, after_ms=timeout_ms + buffer_ms + 1))


def late_partitions(broker: Broker, *, after_ms: int) -> float:
    """What Kafka's name for it would show so many milliseconds from now."""
    context: Any = broker.context
    clock = SimpleNamespace(wall_ms=lambda: context.runtime.clock.wall_ms() + after_ms)
    seen: Any = SimpleNamespace(
        config=context.config, replicas=context.replicas, runtime=SimpleNamespace(clock=clock)
    )
    families = PartitionFamilies(seen)
    for _ in families.steps():
        pass
    (late,) = [family for family in families.totals() if "latetransactions" in family.name]
    ((_, value),) = late.samples
    assert not isinstance(value, Histogram)
    return value


async def test_a_bound_of_series_keeps_the_totals(scene: Any, listeners: list[MetricsListener]) -> None:
    broker = await scene.start()
    await (await scene.connect()).create("many", partitions=20)

    samples = await scrape(listen(broker, listeners, **{"odradek.metrics.series.max": "60"}))

    assert of(samples, "kafka_server_replicamanager_leadercount") == 20
    assert of(samples, "odradek_metrics_series_left_out") > 0
    assert of(samples, "odradek_metrics_series_left_out", family="kafka_log_log_size") == 20


async def test_probes_say_what_is_the_matter(scene: Any, listeners: list[MetricsListener]) -> None:
    broker = await scene.start(odradek_slow_request_ms="0")
    await (await scene.connect()).create("t", partitions=1)
    listener = listen(broker, listeners)

    assert (await ask(listener, "/livez")).status == 200
    ready = await ask(listener, "/readyz")
    assert (ready.status, ready.body.splitlines()[-1]) == (200, b"ready")
    info = json.loads((await ask(listener, "/info")).body)
    assert (info["node_id"], info["is_serving"], info["controller_id"]) == (1, True, 1)

    (directory,) = broker.context.replicas.directories.all()
    directory.offline = "the disk is on fire"
    unready = await ask(listener, "/readyz")
    directory.offline = None
    assert unready.status == 503
    assert b"[failed] log directories: cannot be used: " in unready.body
    assert b"the disk is on fire" in unready.body

    assert json.loads((await ask(listener, "/slow")).body) == []

    await scene.stop()
    stopped = await ask(listener, "/readyz")
    assert (stopped.status, (await ask(listener, "/metrics")).status) == (503, 503)
    assert b"it starts or stops" in stopped.body
    assert (await ask(listener, "/nothing")).status == 404


async def test_an_address_that_is_none_is_named() -> None:
    config, _ = load_broker_config({"metrics.listeners": "9464", "log.dirs": "/nowhere"})
    with pytest.raises(ConfigError, match=r"metrics\.listeners='9464' is not allowed: expected HOST:PORT"):
        MetricsListener(Broker(config, real_runtime()), config)
