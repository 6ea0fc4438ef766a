"""Kafka's own Java clients, through the tools in its jars: the newest versions of every API they use.

The jars are those of the benchmark's peer; where no one has fetched them yet (`python -m benchmarks.peer
--fetch-only`) these tests are skipped, so that running the tests downloads nothing.
"""

from __future__ import annotations

import json

import pytest

TOOLS = "org.apache.kafka.tools"


@pytest.fixture
def java(tools, bootstrap):
    """Runs one of Kafka's tools against the server; returns what it printed."""

    def run(main_class, *arguments, standard_input=""):
        outcome = tools.run(
            main_class, "--bootstrap-server", bootstrap, *arguments, standard_input=standard_input
        )
        assert outcome.status == 0, outcome.terminal
        assert "rror" not in outcome.errors, outcome.errors
        return outcome.printed

    return run


def _consume(java, name, count):
    where = ("--topic", name, "--partition", "0", "--offset", "earliest", "--max-messages", str(count))
    return java(f"{TOOLS}.consumer.ConsoleConsumer", *where).splitlines()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_java_producer_is_read_by_all(java, clients, topic, codec):
    name = topic()
    lines = [f"line {number}" for number in range(20)]
    flags = ("--topic", name, "--compression-codec", codec)
    java(f"{TOOLS}.ConsoleProducer", *flags, standard_input="\n".join(lines) + "\n")
    for client in clients.values():
        assert [record.value.decode() for record in client.consume(name, count=20)] == lines, client.name


def test_the_java_consumer_reads_what_every_client_wrote(java, clients, topic, row):
    name = topic()
    expected = []
    for codec, client in zip(["gzip", "snappy", "lz4", "zstd"], clients.values(), strict=False):
        client.produce(name, [row(value=f"{client.name} {n}".encode()) for n in range(5)], codec=codec)
        expected += [f"{client.name} {n}" for n in range(5)]
    assert _consume(java, name, len(expected)) == expected


def test_java_tools_create_describe_and_delete_topics(java, server):
    name = "made-by-java"
    command = f"{TOOLS}.TopicCommand"
    java(command, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=500000")
    said = java(command, "--describe", "--topic", name)
    assert "PartitionCount: 2" in said
    assert "retention.ms=500000" in said
    java(command, "--delete", "--topic", name)
    assert name not in server.topics()


def test_java_tools_see_and_change_settings(java, tools, topic):
    name = topic()
    command, entity = tools.jars.config_command, ("--entity-type", "topics", "--entity-name", name)
    java(command, *entity, "--alter", "--add-config", "retention.ms=123456")
    assert "retention.ms=123456" in java(command, *entity, "--describe")


def test_java_tools_see_offsets_and_sizes_and_delete_records(java, topic, clients, row, tmp_path):
    name = topic()
    clients["confluent-kafka"].produce(name, [row(value=b"%d" % n) for n in range(10)])
    assert java(f"{TOOLS}.GetOffsetShell", "--topic", name, "--time", "latest").strip() == f"{name}:0:10"
    wanted = tmp_path / "delete.json"
    place = {"topic": name, "partition": 0, "offset": 4}
    wanted.write_text(json.dumps({"partitions": [place], "version": 1}))
    assert "low_watermark: 4" in java(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f'"{name}-0"' in java(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", name)


def test_the_java_performance_tools_move_records(java, topic):
    name = topic(partitions=2)
    moved = java(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", name, "--num-records", "50000", "--record-size", "200", "--throughput", "-1"),
        *("--command-property", "acks=all"),
    )
    assert "50000 records sent" in moved
