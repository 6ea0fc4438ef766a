"""Kafka's tools for ACLs, versions of APIs, and groups of all types; and that no tool of the release is left out unnoticed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from zipfile import ZipFile

import pytest
from benchmarks.odradek_node import OdradekNode
from tests.interop.kafka_tools import transcripts
from tests.interop.kafka_tools.page import ELSEWHERE, NOT_RUN
from tests.interop.kafka_tools.tools import Tools
from tests.interop.kafka_tools.transcripts import SCRIPTS

from odradek.client import Admin, NewTopic, Producer
from odradek.protocol import APIS

TOOLS = "org.apache.kafka.tools"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_MAIN = re.compile(rb"\x01\x00\x04main\x01")
"""The name of the method in a class file."""

Java = Callable[..., str]


@pytest.fixture(scope="module")
def node(server_kind: str) -> Iterator[OdradekNode]:
    if server_kind != "odradek":
        pytest.skip("Kafka's own tools are known to get on with Kafka")
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with OdradekNode(settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def java(node: OdradekNode, tools: Tools) -> Java:
    """Runs one of Kafka's tools against the broker; returns what it printed."""

    def run(tool: str, *arguments: str) -> str:
        outcome = tools.run(f"{TOOLS}.{tool}", "--bootstrap-server", node.bootstrap, *arguments)
        assert outcome.status == 0, outcome.terminal
        return outcome.printed

    return run


def test_kafka_acls_adds_lists_and_removes(java: Java) -> None:
    rule = ("--allow-principal", "User:a", "--producer", "--topic", "guarded")
    java("AclCommand", "--add", *rule)
    lines = java("AclCommand", "--list", "--topic", "guarded").splitlines()
    assert lines[0] == (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=guarded, patternType=LITERAL)`:"
    )
    assert {line.strip() for line in lines[1:] if line.strip()} == {
        f"(principal=User:a, host=*, operation={operation}, permissionType=ALLOW)"
        for operation in ("CREATE", "DESCRIBE", "WRITE")
    }
    java("AclCommand", "--remove", "--force", *rule)
    assert java("AclCommand", "--list", "--topic", "guarded").strip() == ""


def test_kafka_broker_api_versions_can_use_the_newest_version_of_every_api_for_clients(java: Java) -> None:
    listed = re.findall(
        r"(\w+)\((\d+)\): (?:\d+ to )?(\d+) \[usable: (\d+)", java("BrokerApiVersionsCommand")
    )
    assert {int(key): (name, int(usable)) for name, key, newest, usable in listed} == {
        api.key: (api.name, api.latest_stable) for api in APIS.values() if not api.internal
    }
    assert all(newest == usable for _, _, newest, usable in listed)


def test_kafka_share_groups_and_kafka_groups_show_what_a_share_consumer_of_kafka_read(
    java: Java, node: OdradekNode
) -> None:
    with Admin(node.bootstrap) as admin, Producer(node.bootstrap) as producer:
        admin.create_topics([NewTopic("shared", partitions=1)])
        for number in range(10):
            producer.send("shared", b"%d" % number)
        producer.flush()
    reading = ("--topic", "shared", "--group-id", "readers", "--max-messages", "10")
    printed = java("VerifiableShareConsumer", *reading, "--offset-reset-strategy", "earliest")
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] for event in acknowledged)
    assert sorted(
        offset
        for event in acknowledged
        for partition in event["partitions"]
        for offset in partition["offsets"]
    ) == list(range(10))
    group = ("--describe", "--group", "readers", "--offsets")
    assert [
        line.split() for line in java("consumer.group.ShareGroupCommand", *group).splitlines() if line
    ] == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        ["readers", "shared", "0", "10", "0"],
    ]
    assert [line.split() for line in java("GroupsCommand", "--list").splitlines() if line] == [
        ["GROUP", "TYPE", "PROTOCOL"],
        ["readers", "Share", "share"],
    ]
    assert java("streams.StreamsGroupCommand", "--list").strip() == ""


def test_every_tool_of_the_release_is_run_or_has_a_reason(tools: Tools) -> None:
    """Transcripts name tools as Kafka's scripts do."""
    with ZipFile(tools.jars.directory / f"kafka-tools-{tools.jars.version}.jar") as jar:
        names = {
            path.rsplit("/", 1)[-1].removesuffix(".class")
            for path in jar.namelist()
            if path.endswith(".class") and "$" not in path and _MAIN.search(jar.read(path))
        }
    scripted = {command.tool for name in transcripts.names() for command in transcripts.read(name)} - {"cat"}
    run = {SCRIPTS[script].rsplit(".", 1)[-1] for script in scripted} | ELSEWHERE.keys()
    assert names - run - NOT_RUN.keys() == set()
    assert (NOT_RUN.keys() | run) - names == set()
