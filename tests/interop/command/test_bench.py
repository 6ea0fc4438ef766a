"""`odradek bench` on a real broker: what it measures adds up, and it leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek import Admin, Consumer, NewTopic
from odradek.cli.bench import runs
from odradek.cli.main import cli
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker


@pytest.fixture(scope="module")
def bench() -> Iterator[Callable[..., Result]]:
    with LocalBroker() as broker:

        def invoke(*words: str) -> Result:
            return CliRunner().invoke(cli, ["bench", *words, "--bootstrap", broker.address])

        invoke.address = broker.address  # type: ignore[attr-defined]
        yield invoke


def figures(run: Result) -> dict[str, Any]:
    assert run.exit_code == 0, (run.output, run.exception)
    document: dict[str, Any] = json.loads(run.stdout)
    seconds = document["seconds"]  # in whole microseconds, of which a short run has some hundred
    assert document["records_per_second"] == pytest.approx(
        document["records"] / seconds, rel=1e-4 + 1e-6 / seconds
    )
    return document


def test_records_that_are_sent_are_counted_and_their_topic_goes(bench: Any) -> None:
    document = figures(bench("produce", "--records", "500", "--size", "100", "--rate", "5000", "--json"))
    assert (document["records"], document["bytes"]) == (500, 50_000)
    assert document["seconds"] >= 499 / 5000
    latencies = document["latencies"]["acknowledged"]
    assert 0 < latencies["p50_ms"] <= latencies["p99_ms"] <= latencies["max_ms"]
    with Admin(bench.address) as admin:
        assert not [topic for topic in admin.list_topics() if topic.startswith("odradek-bench-")]


def test_a_run_of_some_seconds_ends_and_is_drawn(bench: Any) -> None:
    run = bench("produce", "--seconds", "1.5", "--rate", "200", "-z", "zstd")
    assert run.exit_code == 0
    assert "300 records sent" in run.stdout
    assert "each second" in run.stdout
    assert "until acknowledged, ms: mean" in run.stdout
    assert "≤" in run.stdout


def test_a_topic_of_the_user_s_keeps_what_was_sent_and_is_read_whole(bench: Any) -> None:
    with Admin(bench.address) as admin:
        admin.create_topics([NewTopic("mine", 2, 1)])
    assert bench("produce", "--topic", "mine", "--records", "300", "--size", "10").exit_code == 0
    with Consumer(bench.address) as consumer:
        ends = consumer.end_offsets([TopicPartition("mine", number) for number in range(2)])
    assert sum(ends.values()) == 300
    document = figures(bench("consume", "--topic", "mine", "--json"))
    assert (document["records"], document["bytes"]) == (300, 3000)
    assert figures(bench("consume", "--topic", "mine", "--records", "1", "--json"))["records"] <= 300


def test_a_topic_is_filled_and_read(bench: Any) -> None:
    assert figures(bench("consume", "--fill", "1000", "--partitions", "3", "--json"))["records"] == 1000


def test_a_record_s_way_is_longer_than_its_acknowledgement_takes(bench: Any) -> None:
    document = figures(bench("end-to-end", "--seconds", "1", "--rate", "100", "--size", "8", "--json"))
    assert (document["records"], document["bytes"], document["rate"]) == (100, 800, 100)
    assert document["latencies"]["acknowledged"]["records"] == 100
    assert document["latencies"]["read"]["records"] == 100


@pytest.mark.parametrize(
    "words", [("produce", "--records", "1"), ("consume",), ("end-to-end", "--seconds", "1")]
)
def test_a_topic_that_is_not_there_is_not_made(bench: Any, words: tuple[str, ...]) -> None:
    run = bench(*words, "--topic", "absent")
    assert isinstance(run.exception, KafkaError)
    assert "absent" in str(run.exception)
    with Admin(bench.address) as admin:
        assert "absent" not in admin.list_topics()


def test_the_topic_goes_when_the_run_fails(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "measure_sending", interrupted)
    assert bench("produce").exit_code != 0
    with Admin(bench.address) as admin:
        assert not [topic for topic in admin.list_topics() if topic.startswith("odradek-bench-")]


def test_fill_is_for_topics_that_it_makes(bench: Any) -> None:
    run = bench("consume", "--topic", "mine", "--fill", "5")
    assert "leave out --topic or --fill" in str(run.exception)
