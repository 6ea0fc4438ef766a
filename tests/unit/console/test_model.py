"""The model of the console: figures from descriptions, and what they say is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from odradek.client.admin.transaction_descriptions import TransactionDescription
from odradek.client.admin.types import (
    BrokerDescription,
    ClusterDescription,
    LogDirDescription,
    PartitionDescription,
    ReplicaLogDescription,
    TopicDescription,
)
from odradek.console.model.assembly import brokers_of, tabulated
from odradek.console.model.snapshot import (
    UNKNOWN,
    GroupFigures,
    LongTransaction,
    ModelSnapshot,
    Reading,
    add_sizes,
    disk_figures,
)
from odradek.console.model.transaction_reading import PARTITIONS_MAX, long_transactions
from odradek.console.model.troubles import KINDS, Trouble, Urgency, troubles_of
from odradek.console.pictures.treemap import HEIGHT, WIDTH, treemap
from odradek.console.web.catalogue import LANGUAGES, catalogue
from odradek.model.ids import TopicPartition

GIB = 1 << 30
Row = tuple[int, tuple[int, ...], tuple[int, ...]]


def topic(name: str, *rows: Row) -> TopicDescription:
    return TopicDescription(
        name=name,
        topic_id=UUID(int=1),
        internal=False,
        partitions=tuple(
            PartitionDescription(
                partition=number, leader=leader, leader_epoch=1, replicas=replicas, isr=isr, offline=()
            )
            for number, (leader, replicas, isr) in enumerate(rows)
        ),
    )


def directory(path: str, free: int, *, error: str | None = None, condition: str = "") -> LogDirDescription:
    replicas = {TopicPartition("a", 0): ReplicaLogDescription(size_bytes=7, offset_lag=0, future=False)}
    return LogDirDescription(
        path=path,
        total_bytes=100 * GIB,
        usable_bytes=free,
        replicas=replicas,
        error=error,
        condition=condition,
    )


def snapshot_of(
    topics: Sequence[TopicDescription], directories: Sequence[LogDirDescription] = (), brokers: int = 2
) -> ModelSnapshot:
    figures, table = tabulated(topics)
    cluster = ClusterDescription(
        cluster_id="c",
        controller_id=1,
        brokers=tuple(
            BrokerDescription(broker_id=number, host="h", port=9) for number in range(1, brokers + 1)
        ),
    )
    disks = {1: tuple(disk_figures(log_directory) for log_directory in directories)}
    return ModelSnapshot(topics=figures, partitions=table, brokers=brokers_of(cluster, table, disks))


def kinds(snapshot: ModelSnapshot) -> list[str]:
    return [trouble.kind for trouble in troubles_of(snapshot)]


HEALTHY = topic("a", (1, (1, 2), (1, 2)), (2, (2, 1), (2, 1)))


def test_a_healthy_cluster_has_no_trouble() -> None:
    assert kinds(snapshot_of([HEALTHY], [directory("/d", 50 * GIB)])) == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(-1, (1, 2), ())], ["offline"]),
        ([(1, (1, 2), (1,))], ["under_replicated"]),
        ([(1, (1, 3), (1,))], ["broker_dead", "under_replicated_by_dead"]),
        ([(1, (2, 1), (1, 2))], ["not_preferred"]),
    ],
)
def test_what_is_wrong_with_partitions(rows: list[Row], expected: list[str]) -> None:
    assert kinds(snapshot_of([HEALTHY, topic("b", *rows)])) == expected


@pytest.mark.parametrize(
    ("log_directory", "kind"),
    [
        (directory("/d", 0), "disk_full"),
        (directory("/d", 5 * GIB), "disk_nearly_full"),
        (directory("/d", 50 * GIB, condition="slow"), "disk_slow"),
        (directory("/d", 50 * GIB, error="KAFKA_STORAGE_ERROR"), "disk_offline"),
    ],
)
def test_what_is_wrong_with_disks(log_directory: LogDirDescription, kind: str) -> None:
    assert kinds(snapshot_of([HEALTHY], [log_directory])) == [kind]


def test_min_isr_counts_only_where_it_was_read() -> None:
    thin = snapshot_of([topic("b", (1, (1, 2), (1,)))])
    assert "under_min_isr" not in kinds(thin)
    assert kinds(replace(thin, min_isr={"b": 2}))[0] == "under_min_isr"


def test_a_group_without_members_counts_only_when_it_lags() -> None:
    groups = {
        name: GroupFigures(name, "consumer", "Empty", members, lag, 1)
        for name, members, lag in (("old", 0, 9), ("done", 0, 0), ("read", 2, 9), ("unread", 0, UNKNOWN))
    }
    troubles = troubles_of(replace(snapshot_of([HEALTHY]), groups=groups))
    assert [trouble.values["group"] for trouble in troubles] == ["old"]


@pytest.mark.parametrize(("minutes", "level"), [(2, Urgency.NOTE), (16, Urgency.WARNING)])
def test_a_transaction_that_is_open_for_long_is_named(minutes: int, level: Urgency) -> None:
    partitions = tuple(TopicPartition("a", number) for number in range(4))
    transactions = (
        LongTransaction("pay-1", minutes * 60_000, 3_600_000, partitions),
        LongTransaction("pay-2", 61_000, 90_000, ()),
    )
    [trouble] = troubles_of(
        replace(snapshot_of([HEALTHY]), long_transactions=transactions, long_transaction_count=2)
    )
    assert (trouble.kind, trouble.level) == ("transaction_open", level)
    assert trouble.values == {
        "count": 2,
        "transaction": "pay-1",
        "minutes": minutes,
        "limit": 60,
        "partitions": "a-0, a-1, a-2, …",
    }


def described(name: str, start_time_ms: int | None) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=name,
        producer_id=1,
        producer_epoch=0,
        state="Ongoing" if start_time_ms is not None else "Empty",
        timeout_ms=60_000,
        start_time_ms=start_time_ms,
        partitions=(TopicPartition("a", 0),) * (PARTITIONS_MAX + 1),
        coordinator=1,
    )


def test_transactions_that_ended_or_have_just_begun_are_left_out() -> None:
    listed = [described(name, at_ms) for name, at_ms in (("b", 9), ("ended", None), ("a", 0), ("new", 11))]
    transactions = long_transactions(listed, 110, 100)
    assert [(listed_as.transactional_id, listed_as.open_ms) for listed_as in transactions] == [
        ("a", 110),
        ("b", 101),
    ]
    assert len(transactions[0].partitions) == PARTITIONS_MAX


def test_a_cluster_that_does_not_answer_is_the_only_trouble_of_reading() -> None:
    readings = {"brokers": Reading(problem="nothing listens"), "topics": Reading(problem="nothing listens")}
    assert kinds(replace(ModelSnapshot(), readings=readings)) == ["cluster_unread"]
    readings = {"brokers": Reading(read_ms=1), "disks": Reading(problem="no rights")}
    assert kinds(replace(ModelSnapshot(), readings=readings)) == ["part_unread"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_trouble_has_words(kind: str, language: str) -> None:
    numbers = (
        "count",
        "broker",
        "replicas",
        "free_bytes",
        "lag",
        "minutes",
        "limit",
        "percent",
        "rate_bytes",
        "days",
    )
    values = dict.fromkeys(numbers, 1)
    words = dict.fromkeys(
        (
            "examples",
            "path",
            "brokers",
            "group",
            "part",
            "problem",
            "transaction",
            "partitions",
            "client",
            "listener",
            "token",
            "owner",
        ),
        "x",
    )
    trouble = Trouble(kind=kind, level=Urgency.BAD, values=values | words)
    for part in ("what", "why", "next"):
        assert catalogue(language).text(f"troubles.{kind}.{part}", **trouble.values)


def test_brokers_have_their_part_of_the_partitions() -> None:
    alive, other, dead = snapshot_of([topic("a", (1, (1, 3), (1,)), (2, (2, 1), (2, 1)))]).brokers
    assert (alive.leads, alive.replicas, alive.out_of_sync, alive.is_controller) == (1, 2, 0, True)
    assert (other.leads, other.replicas) == (1, 1)
    assert (dead.broker_id, dead.is_alive, dead.replicas, dead.out_of_sync) == (3, False, 1, 1)


def test_a_broker_that_died_keeps_its_rack_and_its_address() -> None:
    before = snapshot_of([topic("a", (3, (3, 1), (3, 1)))], brokers=3).brokers
    known = {broker.broker_id: replace(broker, rack="r") for broker in before}
    _, table = tabulated([topic("a", (1, (3, 1), (1,)))])
    cluster = ClusterDescription(
        cluster_id="c", controller_id=1, brokers=(BrokerDescription(broker_id=1, host="h", port=9),)
    )
    alive, dead = brokers_of(cluster, table, {}, known)
    assert (dead.is_alive, dead.rack, dead.host, dead.out_of_sync) == (False, "r", "h", 1)
    assert (alive.is_alive, alive.leads) == (True, 1)


def test_sizes_are_of_all_replicas_and_of_the_largest_one() -> None:
    totals: dict[str, int] = {}
    largest: dict = {}
    for sizes in ((5, 1), (7, 0)):
        replicas = {
            TopicPartition("a", number + 1): ReplicaLogDescription(
                size_bytes=size, offset_lag=0, future=False
            )
            for number, size in enumerate(sizes)
        }
        add_sizes([replace(directory("/d", 1), replicas=replicas)], totals, largest)
    assert totals == {"a": 13}
    assert largest["a"].tolist() == [UNKNOWN, 7, 1]
    snapshot = replace(ModelSnapshot(), largest=largest)
    assert [snapshot.partition_bytes("a", number) for number in range(4)] == [UNKNOWN, 7, 1, UNKNOWN]


def test_tiles_fill_the_picture_and_do_not_overlap() -> None:
    sizes = [(f"t{number}", 2_000 - 61 * number) for number in range(24)]
    tiles = treemap(sizes)
    total = sum(size for _, size in sizes)
    assert [tile.name for tile in tiles] == [name for name, _ in sizes]
    assert sum(tile.width * tile.height for tile in tiles) == pytest.approx(WIDTH * HEIGHT, rel=0.01)
    for tile in tiles:
        assert tile.width * tile.height == pytest.approx(WIDTH * HEIGHT * tile.size_bytes / total, rel=0.05)
        assert tile.x + tile.width <= WIDTH + 0.2
        assert tile.y + tile.height <= HEIGHT + 0.2
    assert treemap([]) == []
