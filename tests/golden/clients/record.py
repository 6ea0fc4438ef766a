"""Records what real clients send: the first frame of each API and version, in a file for each client.

Run it from the repository's root, with Java and Maven, when a client's version or the set of APIs changes:

    python -m tests.golden.clients.record

It starts Apache Kafka behind a proxy and makes each client do a bit of everything, the Java clients through the
tools in Kafka's own jars. The frames differ from run to run in ids and times; what a test asks is that they decode
and come out the same bytes again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import aiokafka
import confluent_kafka as ck
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from benchmarks.peer import KafkaNode, PeerJars
from benchmarks.peer.fetch import java_command
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.interop.adapters import CLIENTS, Row
from tests.interop.proxy import Proxy, RecordedRequest

from odradek.protocol import APIS, decode_request_header

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.admin import ConfigResource as PyResource
    from kafka.admin import KafkaAdminClient

HERE = Path(__file__).parent
SECONDS_MAX = 30
KINDS_MAX = 6
"""Frames kept of one API and version: those of different lengths say different things."""
SETTLE_SECONDS = 0.3
"""Kafka's metadata follows its answers a little later."""


def main() -> int:
    with (
        Proxy() as proxy,
        KafkaNode(settings={"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}) as node,
    ):
        host, port = node.bootstrap.rsplit(":", 1)
        proxy.target = (host, int(port))
        for name, (version, work) in clients_at_work(node.jars).items():
            proxy.recorded.clear()
            work(proxy.bootstrap)
            _write(name, version, list(proxy.recorded))
    return 0


def clients_at_work(jars: PeerJars | None) -> dict[str, tuple[str, Callable[[str], None]]]:
    """By name: a client's version, and what makes it do a bit of everything at a bootstrap address."""
    import importlib.metadata

    work: dict[str, tuple[str, Callable[[str], None]]] = {
        "confluent-kafka": (f"{ck.__version__} (librdkafka {ck.libversion()[0]})", _confluent),
        "kafka-python": (kafka.__version__, _kafka_python),
        "aiokafka": (importlib.metadata.version("aiokafka"), _aiokafka),
    }
    if shutil.which("kcat"):
        kcat = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        work["kcat"] = (kcat.split("Version ")[1].split()[0], _kcat)
    if jars is not None:
        work["java"] = (jars.version, lambda bootstrap: _java(bootstrap, jars))
    return work


def _write(name: str, version: str, recorded: list[RecordedRequest]) -> None:
    frames: dict[tuple[int, int], dict[int, bytes]] = {}
    for request in recorded:
        kinds = frames.setdefault((request.api_key, request.api_version), {})
        if request.api_key in APIS and len(kinds) < KINDS_MAX and not _from_the_broker(request.frame):
            kinds.setdefault(len(request.frame), request.frame)
    listed = [
        {"api": APIS[key].name, "version": spoken, "frame": frame.hex()}
        for (key, spoken), kinds in sorted(frames.items())
        for frame in kinds.values()
    ]
    document = {"client": name, "client_version": version, "requests": listed}
    (HERE / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{name} {version}: {len(listed)} requests")  # noqa: T201


def _from_the_broker(frame: bytes) -> bool:
    """Kafka's transaction coordinator, too, talks to the address that its broker advertises."""
    client_id = decode_request_header(frame)[0].client_id or ""
    return client_id.startswith(("broker-", "AddPartitionsManager"))


def _produce_and_consume(name: str, bootstrap: str, codecs: tuple[str, ...]) -> None:
    client = next(kind for kind in CLIENTS if kind.name == name)(bootstrap)
    topic = f"golden-{name}"
    rows = [Row(key=b"k", value=b"value", headers=(("h", b"1"),)), Row(key=b"gone", value=None)]
    for codec in codecs:
        client.produce(topic, rows, codec=codec, acks="all")
    client.produce(topic, rows, acks="1")
    client.produce(topic, rows, acks="0")
    client.produce(topic, rows, idempotent=True)
    client.consume(topic, count=6, start=None)


def _confluent(bootstrap: str) -> None:
    _produce_and_consume("confluent-kafka", bootstrap, ("none", "gzip", "snappy", "lz4", "zstd"))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = ck.TopicPartition("golden-admin", 0)
    topic = ConfigResource(ResourceType.TOPIC, "golden-admin")
    entry = ConfigEntry("retention.ms", "100000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, "golden-admin", incremental_configs=[entry])
    steps: list[Callable[[], object]] = [
        lambda: admin.create_topics([NewTopic("golden-admin", 2, 1, config={"retention.ms": "500000"})]),
        lambda: admin.create_partitions([NewPartitions("golden-admin", 3)]),
        lambda: admin.describe_topics(ck.TopicCollection(["golden-admin"])),
        lambda: admin.describe_configs([topic]),
        lambda: admin.incremental_alter_configs([change]),
        lambda: admin.list_offsets({place: OffsetSpec.max_timestamp()}),
        lambda: admin.delete_records([ck.TopicPartition("golden-admin", 0, 0)]),
        lambda: {"": admin.describe_cluster()},
        lambda: {"": admin.list_consumer_groups()},
        lambda: admin.delete_topics(["golden-admin"]),
    ]
    for step in steps:
        for future in step().values():  # type: ignore[attr-defined]
            future.result(SECONDS_MAX)
        time.sleep(SETTLE_SECONDS)
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "golden", "auto.offset.reset": "earliest"}
    )
    consumer.offsets_for_times([ck.TopicPartition("golden-confluent-kafka", 0, 1)], timeout=SECONDS_MAX)
    consumer.subscribe(["golden-confluent-kafka"])
    while consumer.poll(1) is None:
        pass
    consumer.commit(asynchronous=False)
    consumer.close()
    producer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": "golden"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("golden-confluent-kafka", b"in a transaction")
    producer.commit_transaction(SECONDS_MAX)


def _kafka_python(bootstrap: str) -> None:
    _produce_and_consume("kafka-python", bootstrap, ("none", "gzip", "lz4", "zstd"))
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    place = kafka.TopicPartition("golden-python", 0)
    admin.create_topics({"golden-python": {"num_partitions": 2}}, wait_for_metadata=True)
    admin.create_partitions({"golden-python": 3})
    time.sleep(SETTLE_SECONDS)
    admin.describe_topics(["golden-python"])
    admin.describe_topic_partitions(["golden-python"])
    admin.describe_configs([PyResource("TOPIC", "golden-python")])
    for incremental in (True, False):
        change = PyResource("TOPIC", "golden-python", {"retention.ms": "100000"})
        admin.alter_configs([change], incremental=incremental)
    admin.delete_records({place: 0})
    admin.describe_cluster()
    admin.describe_log_dirs(["golden-python"])
    admin.list_groups()
    admin.list_config_resources()
    admin.delete_topics(["golden-python"])
    admin.close()
    consumer = kafka.KafkaConsumer(
        "golden-kafka-python",
        bootstrap_servers=bootstrap,
        group_id="golden-python",
        auto_offset_reset="earliest",
    )
    while not consumer.poll(timeout_ms=1000):
        pass
    consumer.commit()
    where = kafka.TopicPartition("golden-kafka-python", 0)
    consumer.offsets_for_times({where: 1})
    consumer.end_offsets([where])
    consumer.close()
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id="golden-python")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("golden-kafka-python", b"in a transaction")
    producer.commit_transaction()
    producer.close()


def _aiokafka(bootstrap: str) -> None:
    _produce_and_consume("aiokafka", bootstrap, ("none", "gzip", "snappy", "lz4", "zstd"))

    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([AioNewTopic("golden-aio", 1, 1)])
        await asyncio.sleep(SETTLE_SECONDS)
        await admin.create_partitions({"golden-aio": AioNewPartitions(2)})
        await asyncio.sleep(SETTLE_SECONDS)
        await admin.describe_topics(["golden-aio"])
        await admin.describe_configs(
            [AioResource(AioResourceType.TOPIC, "golden-aio", {"retention.ms": None})]
        )
        await admin.alter_configs(
            [AioResource(AioResourceType.TOPIC, "golden-aio", {"retention.ms": "100000"})]
        )
        place = aiokafka.TopicPartition("golden-aio", 0)
        await admin.delete_records({place: RecordsToDelete(before_offset=0)})
        await admin.describe_cluster()
        await admin.delete_topics(["golden-aio"])
        await admin.close()
        consumer = aiokafka.AIOKafkaConsumer(
            "golden-aiokafka",
            bootstrap_servers=bootstrap,
            group_id="golden-aio",
            auto_offset_reset="earliest",
        )
        async with consumer:
            await consumer.getone()
            await consumer.commit()
            where = aiokafka.TopicPartition("golden-aiokafka", 0)
            await consumer.offsets_for_times({where: 1})
            await consumer.end_offsets([where])
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="golden-aio")
        async with producer, producer.transaction():
            await producer.send_and_wait("golden-aiokafka", b"in a transaction")

    asyncio.run(work())


def _kcat(bootstrap: str) -> None:
    _produce_and_consume("kcat", bootstrap, ("none", "gzip", "snappy", "lz4", "zstd"))
    for flags in (["-L"], ["-Q", "-t", "golden-kcat:0:1"]):
        subprocess.run(
            ["kcat", "-b", bootstrap, *flags], check=True, capture_output=True, timeout=SECONDS_MAX
        )


def _java(bootstrap: str, jars: PeerJars) -> None:
    """Kafka's own tools, which are the Java producer, consumer and admin client."""

    def tool(main_class: str, *arguments: str, given: str = "") -> None:
        command = [java_command(), "-Xmx256M", "-cp", jars.class_path, main_class, *arguments]
        process = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=SECONDS_MAX * 2, check=False
        )
        if process.returncode != 0:
            print(f"{main_class}: {(process.stderr or process.stdout).strip()[:300]}", file=sys.stderr)  # noqa: T201

    at = ("--bootstrap-server", bootstrap)
    tools = "org.apache.kafka.tools"
    topic = ("--topic", "golden-java")
    tool(f"{tools}.TopicCommand", *at, "--create", *topic, "--partitions", "2")
    tool(f"{tools}.TopicCommand", *at, "--alter", *topic, "--partitions", "3")
    tool(f"{tools}.TopicCommand", *at, "--describe", *topic)
    for codec in ("none", "zstd"):
        flags = (*at, *topic, "--compression-codec", codec)
        tool(f"{tools}.ConsoleProducer", *flags, given="one\ntwo\n")
    tool(f"{tools}.ConsoleProducer", *at, *topic, "--request-required-acks", "1", given="three\n")
    tool(f"{tools}.consumer.ConsoleConsumer", *at, *topic, "--from-beginning", "--max-messages", "3")
    kcat_arguments = ("--partition", "0", "--offset", "0", "--timeout-ms", "3000")
    tool(f"{tools}.consumer.ConsoleConsumer", *at, *topic, *kcat_arguments)
    tool(f"{tools}.GetOffsetShell", *at, *topic, "--time", "-1")
    tool(f"{tools}.GetOffsetShell", *at, *topic, "--time", "-3")
    tool(f"{tools}.LogDirsCommand", *at, "--describe", "--topic-list", "golden-java")
    entity = (*at, "--entity-type", "topics", "--entity-name", "golden-java")
    tool(jars.config_command, *entity, "--describe")
    tool(jars.config_command, *entity, "--alter", "--add-config", "retention.ms=100000")
    tool(f"{tools}.consumer.group.ConsumerGroupCommand", *at, "--list")
    tool(f"{tools}.consumer.group.ConsumerGroupCommand", *at, "--describe", "--all-groups")
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "delete.json"
        place = {"topic": "golden-java", "partition": 0, "offset": 0}
        wanted.write_text(json.dumps({"partitions": [place], "version": 1}), encoding="utf-8")
        tool(f"{tools}.DeleteRecordsCommand", *at, "--offset-json-file", str(wanted))
    tool(f"{tools}.BrokerApiVersionsCommand", *at)
    tool(f"{tools}.ClusterTool", "cluster-id", *at)
    tool(f"{tools}.TopicCommand", *at, "--delete", *topic)


if __name__ == "__main__":
    sys.exit(main())
