"""Unmodified clients that push their metrics (KIP-714): librdkafka, and if they are there franz-go and Kafka's Java clients."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from benchmarks.odradek_node import OdradekNode
from benchmarks.peer import PeerAbsentError, cached_peer, free_port, java_program
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from tests.interop.languages.prepare import LANGUAGES, AbsentError
from tests.kit.waiting import eventually

from odradek.cli.main import cli
from odradek.client import Admin
from odradek.client import Consumer as OwnConsumer
from odradek.client import Producer as OwnProducer
from odradek.client.network.metrics import MetricName

SECONDS_MAX = 60.0
Clients = Callable[[], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def asking() -> Iterator[tuple[str, str]]:
    """A broker that asks all clients for all metrics five times a second, and its metrics listener."""
    metrics = f"127.0.0.1:{free_port()}"
    with OdradekNode(settings={"metrics.listeners": metrics}) as node:
        subscription = ["all", "--metrics", "*", "--interval", "200", "--bootstrap", node.bootstrap]
        made = CliRunner().invoke(cli, ["client-metrics", "alter", *subscription])
        assert made.exit_code == 0, made.output
        with Admin(node.bootstrap) as admin:
            admin.create_topics(["pushed"])
        yield node.bootstrap, metrics


def page(metrics: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{metrics}{path}", timeout=SECONDS_MAX) as opened:
        text: str = opened.read().decode()
    return text


def pushing(metrics: str, client_id: str) -> dict[str, Any] | None:
    shown = [client for client in json.loads(page(metrics, "/clients")) if client["client_id"] == client_id]
    return shown[0] if shown else None


def until_it_pushed(metrics: str, client_id: str, name: str, work: Callable[[], object]) -> dict[str, Any]:
    """Works until the broker has a metric of the client."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        work()
        shown = pushing(metrics, client_id)
        if shown is not None and any(metric["name"] == name for metric in shown["metrics"]):
            return shown
    raise AssertionError(f"{client_id} pushed no {name} within {SECONDS_MAX:g} s")


def wait_for_goodbye(metrics: str, client_id: str) -> None:
    """Waits for the last push: a client may end before the broker has answered it."""
    eventually(
        lambda: pushing(metrics, client_id), holds=lambda shown: shown and shown["has_ended"], every_s=0.1
    )


def test_librdkafka_pushes_and_says_goodbye(asking: tuple[str, str]) -> None:
    bootstrap, metrics = asking
    reach = {"bootstrap.servers": bootstrap, "log_level": 2}
    producer = Producer({**reach, "client.id": "rd-producer"})
    consumer = Consumer(
        {**reach, "client.id": "rd-consumer", "group.id": "rd", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["pushed"])

    def produce() -> None:
        producer.produce("pushed", b"x")
        producer.flush()

    name = "org.apache.kafka.producer.request.latency.avg"
    produced = until_it_pushed(metrics, "rd-producer", name, produce)
    name = "org.apache.kafka.consumer.coordinator.assigned.partitions"
    consumed = until_it_pushed(metrics, "rd-consumer", name, lambda: consumer.poll(0.1))
    consumer.close()

    assert "rdkafka" in produced["software"]
    assert produced["address"] == "127.0.0.1"
    assert consumed["labels"]["group_id"] == "rd"
    wait_for_goodbye(metrics, "rd-consumer")
    text = page(metrics, "/metrics")
    instance = produced["client_instance_id"]
    series = "org_apache_kafka_producer_request_latency_avg"
    assert f'{series}{{client_id="rd-producer",client_instance_id="{instance}"}}' in text
    listed = CliRunner().invoke(cli, ["broker", "clients", "--metrics", metrics])
    assert instance in listed.stdout
    assert "rd-consumer" in listed.stdout
    words = [
        "broker",
        "clients",
        "--metrics",
        metrics,
        "--client",
        instance,
        "--name",
        "org.apache.kafka.producer.",
    ]
    assert "org.apache.kafka.producer.request.latency.avg" in CliRunner().invoke(cli, words).stdout


@pytest.mark.slow
def test_javas_producer_pushes(asking: tuple[str, str]) -> None:
    try:
        jars = cached_peer()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    bootstrap, metrics = asking
    tool = ["org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", "pushed"]
    process = subprocess.Popen([*java_program(jars), *tool], stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    keyboard = process.stdin

    def send() -> None:
        keyboard.write("x\n")
        keyboard.flush()
        time.sleep(0.1)

    try:
        name = "org.apache.kafka.producer.connection.creation.total"
        shown = until_it_pushed(metrics, "console-producer", name, send)
        keyboard.close()
        process.wait(SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
    assert shown["software"].startswith("apache-kafka-java")
    assert len(shown["metrics"]) > 10
    ended = pushing(metrics, "console-producer")
    assert ended is not None
    assert ended["has_ended"]


def test_franz_go_pushes_its_metrics_and_those_of_the_application(asking: tuple[str, str]) -> None:
    try:
        command = LANGUAGES["franz"].ready()
    except AbsentError as reason:
        pytest.skip(f"absent: {reason}")
    bootstrap, metrics = asking
    with Admin(bootstrap) as admin:
        admin.create_topics(["pushed-by-franz"])
    work = {"topic": "pushed-by-franz", "group": "franz", "id": "franz-client", "values": ["a", "b", "c"]}
    process = subprocess.Popen(
        [*command, "push", bootstrap, json.dumps(work)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        name = "org.apache.kafka.consumer.node.request.latency.max"
        shown = until_it_pushed(metrics, "franz-client", name, lambda: time.sleep(0.1))
        printed, _ = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
    produced = json.loads(printed)["produced"]

    assert shown["software"].startswith("kgo")
    assert shown["address"] == "127.0.0.1"
    wait_for_goodbye(metrics, "franz-client")
    ended = pushing(metrics, "franz-client")
    assert ended is not None
    values = {
        (metric["name"], tuple(sorted(metric["labels"].items()))): metric["value"]
        for metric in ended["metrics"]
    }
    assert values["application.records", (("kind", "written"),)] == produced, "changes add up to the count"
    assert values["org.apache.kafka.producer.connection.creation.total", ()] >= 1
    assert values[name, (("node_id", "1"),)] > 0, "its fetches wait for records"
    labels = f'client_id="franz-client",client_instance_id="{ended["client_instance_id"]}",kind="written"'
    assert f"client_telemetry_application_records_total{{{labels}}} {produced}" in page(metrics, "/metrics")
    words = ["broker", "clients", "--metrics", metrics, "--client", ended["client_instance_id"]]
    assert "application.records" in CliRunner().invoke(cli, words).stdout


def test_our_own_clients_push_and_know_their_id(asking: tuple[str, str]) -> None:
    bootstrap, metrics = asking
    own = {"auto_offset_reset": "earliest", "group_id": "own"}
    with (
        OwnProducer(bootstrap, client_id="own-producer") as producer,
        OwnConsumer(bootstrap, client_id="own-consumer", **own) as consumer,  # type: ignore[arg-type]
    ):
        consumer.subscribe(["pushed"])
        name = "org.apache.kafka.producer.record.send.total"
        until_it_pushed(metrics, "own-producer", name, lambda: producer.send_and_wait("pushed", b"x"))
        name = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
        consumed = until_it_pushed(metrics, "own-consumer", name, lambda: consumer.poll(0.1))
        assert consumed["labels"] == {"group_id": "own"}
        assert consumed["client_instance_id"] == consumer.client_instance_id(SECONDS_MAX)
        sent = producer.metrics()[
            MetricName("producer-metrics", "record-send-total", (("client-id", "own-producer"),))
        ]
    ended = pushing(metrics, "own-producer")
    assert ended is not None
    assert ended["has_ended"]
    [total] = [metric for metric in ended["metrics"] if metric["name"].endswith("producer.record.send.total")]
    assert total["value"] == sent, "changes add up to the count"
