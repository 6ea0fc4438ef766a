"""Clients of other languages, each unmodified: Go's franz-go and sarama, Node's kafkajs, Kafka's own Java clients.

They are programs under `languages/` that take a command and answer in JSON. `make interop` builds them; where one is not
built, its tests say that it is absent.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.interop.languages.prepare import LANGUAGES, AbsentError
from tests.interop.server import Server, running, share_settings

SECONDS_MAX = 90
CODECS = {
    "franz": ["none", "gzip", "snappy", "lz4", "zstd"],
    "sarama": ["none", "gzip", "snappy", "lz4", "zstd"],
    "kafkajs": ["none", "gzip", "snappy", "lz4"],
    "java": ["none", "gzip", "snappy", "lz4", "zstd"],
}
KIP_848 = ["franz", "java"]
KIP_932 = ["java"]
_names = itertools.count()


@pytest.fixture(scope="module")
def server(server_kind: str, make_node: Any) -> Iterator[Server]:
    """A broker whose groups form at once."""
    with running(server_kind, make_node, share_settings(lock_ms=2_000)) as started:
        yield started


Run = Callable[..., dict[str, Any]]


def runner(language: str, bootstrap: str) -> Run:
    try:
        command = LANGUAGES[language].ready()
    except AbsentError as reason:
        pytest.skip(f"absent: {reason}")

    def run(what: str, **given: Any) -> dict[str, Any]:
        process = subprocess.run(
            [*command, what, bootstrap, json.dumps(given)],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert process.returncode == 0, process.stdout + process.stderr[-4000:]
        document: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
        return document

    return run


@pytest.fixture(params=list(LANGUAGES))
def run(request: pytest.FixtureRequest, bootstrap: str) -> Run:
    return runner(request.param, bootstrap)


@pytest.fixture
def language(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["run"])


def _values(*names: str) -> list[str]:
    return sorted(f"{name} {number}" for name in names for number in range(10))


def _name(kind: str) -> str:
    return f"{kind}-{next(_names)}"


def test_what_it_writes_with_each_codec_everyone_reads(
    run: Run, language: str, bootstrap: str, topic: Any, clients: Any
) -> None:
    name = topic()
    for codec in CODECS[language]:
        assert run("produce", topic=name, codec=codec, values=_values(codec)) == {"produced": 10}
    expected = _values(*CODECS[language])
    assert run("consume", topic=name, count=len(expected))["values"] == expected
    others = clients["kafka-python"].consume(name, count=len(expected))
    assert sorted(record.value.decode() for record in others) == expected


def test_it_reads_what_others_wrote_with_each_codec(
    run: Run, language: str, topic: Any, clients: Any, row: Any
) -> None:
    name = topic(2)
    for codec in CODECS[language]:
        clients["confluent-kafka"].produce(
            name, [row(value=value.encode()) for value in _values(codec)], codec=codec
        )
    expected = _values(*CODECS[language])
    assert run("consume", topic=name, count=len(expected))["values"] == expected


def test_a_group_goes_on_where_it_committed(run: Run, topic: Any) -> None:
    name, group = topic(3), _name("group")
    run("produce", topic=name, values=_values("first"))
    assert run("group", topic=name, group=group, count=10)["values"] == _values("first")
    run("produce", topic=name, values=_values("second"))
    assert run("group", topic=name, group=group, count=10)["values"] == _values("second")


def test_partitions_are_shared_with_a_second_member_and_come_back(run: Run, topic: Any) -> None:
    report = run("rebalance", topic=topic(4), group=_name("group"), count=4)
    assert report == {"shared": [2, 2], "alone": 4}


@pytest.mark.parametrize("run", KIP_848, indirect=True)
def test_the_consumer_protocol_shares_partitions_too(run: Run, bootstrap: str, topic: Any) -> None:
    name, group = topic(4), _name("kip-848")
    report = run("rebalance", topic=name, group=group, count=4, protocol="consumer")
    assert report == {"shared": [2, 2], "alone": 4}
    run("produce", topic=name, values=_values("x"))
    assert run("group", topic=name, group=group, count=10, protocol="consumer")["values"] == _values("x")
    asking = AdminClient({"bootstrap.servers": bootstrap})
    listed = asking.list_consumer_groups().result(30).valid
    assert {listed_group.group_id: listed_group.type.name for listed_group in listed}[group] == "CONSUMER"


@pytest.mark.parametrize("run", KIP_932, indirect=True)
def test_a_share_group_accepts_all_and_gets_twice_what_it_released(run: Run, topic: Any) -> None:
    name = topic(1)
    run("produce", topic=name, values=_values("x"))
    report = run("share", topic=name, group=_name("share"), count=10)
    assert report["accepted"] == _values("x")
    assert sorted(report["deliveries"].values()) == [1] * 5 + [2] * 5


@pytest.mark.parametrize("run", KIP_932, indirect=True)
def test_two_consumers_share_one_partition(run: Run, topic: Any) -> None:
    report = run("share-two", topic=topic(1), group=_name("share"))
    assert report["accepted"] == report["first"] + report["second"]
    assert min(report["first"], report["second"]) > 0


@pytest.mark.parametrize("run", KIP_932, indirect=True)
def test_records_of_a_silent_consumer_come_back_when_their_lock_ends(run: Run, topic: Any) -> None:
    name = topic(1)
    run("produce", topic=name, values=_values("x"))
    report = run("share-hold", topic=name, group=_name("share"), count=10)
    assert report["held"] > 0
    assert report["accepted"] == _values("x")


def test_only_committed_transactions_are_seen(run: Run, topic: Any) -> None:
    name = topic(2)
    assert run("transact", topic=name, id=_name("tx"), values=_values("committed")) == {"committed": 10}
    run("produce", topic=name, values=_values("later"))
    assert run("consume", topic=name, count=20)["values"] == _values("committed", "later")


def test_records_and_offsets_move_in_one_transaction(run: Run, topic: Any) -> None:
    source, sink, group = topic(2), topic(2), _name("group")
    run("produce", topic=source, values=_values("moved"))
    report = run("copy", topic=source, sink=sink, group=group, id=_name("tx"), count=10)
    assert report == {"copied": 10}
    run("produce", topic=source, values=_values("more"))
    assert run("copy", topic=source, sink=sink, group=group, id=_name("tx"), count=10) == {"copied": 10}
    assert run("consume", topic=sink, count=20)["values"] == _values("moved", "more")


def test_its_administrator_sees_groups_and_topics(run: Run, topic: Any) -> None:
    name, group = topic(3), _name("group")
    run("produce", topic=name, values=_values("x"))
    run("group", topic=name, group=group, count=10)
    report = run("admin", topic=_name("made"), group=group)
    assert (report["partitions"], report["state"].upper(), report["listed"]) == (3, "EMPTY", True)
    assert report["deleted"] == group
    listed = run("admin", topic=_name("made"), group=_regrouped(run, name, group))
    assert listed["listed"]


def _regrouped(run: Run, name: str, group: str) -> str:
    """A deleted group comes back when someone joins it, from the beginning."""
    assert run("group", topic=name, group=group, count=10)["values"] == _values("x")
    return group
