"""Input offsets in a decision, and whether a new query goes on where they end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from odradek.model.errors import ConfigError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.spark.exactly_once.checkpoint import BatchInput, batch_input, beginnings, read_topic_ids
from odradek.spark.exactly_once.decision import Decision
from odradek.spark.exactly_once.inputs import TOPICS_KNOWN_FOR_S, KnownTopics, check_repeated, check_resumed
from odradek.spark.exactly_once.task import BatchName

_OTHER_THREAD_S = 0.5
A, B, OTHER = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("other", 0)


FIRST, SECOND = UUID(int=1), UUID(int=2)


@dataclass
class Cluster:
    counts: dict[str, int]
    ids: dict[str, UUID] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        self.asked.append(sorted(topics))
        return {name: self.counts[name] for name in topics if name in self.counts}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        return {name: self.ids.get(name, FIRST) for name in topics if name in self.counts}


@dataclass
class Watch:
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


@dataclass
class Holding:
    """What a sink knows of its cluster's topics, and the offsets that it would commit."""

    cluster: Cluster
    watch: Watch = field(default_factory=Watch)
    known: KnownTopics = field(default_factory=KnownTopics)

    def held(
        self, offsets: dict[TopicPartition, int], ids: dict[str, UUID] | None = None
    ) -> dict[TopicPartition, int]:
        held = self.known.held(offsets, ids or {}, self.cluster, self.watch)
        for partition, offset in held.items():
            assert offset.topic_id == (ids or {}).get(partition.topic, ZERO_UUID)
        return {partition: offset.offset for partition, offset in held.items()}


def test_topics_of_another_cluster_are_left_out() -> None:
    assert Holding(Cluster({"a": 1})).held({A: 1, B: 2, OTHER: 3}) == {A: 1}


def test_while_one_thread_asks_the_cluster_others_wait_for_what_it_says() -> None:
    sink = Holding(Cluster({"a": 1}))
    held: list[dict[TopicPartition, int]] = []
    other = threading.Thread(target=lambda: held.append(sink.held({A: 1})))

    class Slow(Cluster):
        def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
            if other.ident is None:
                other.start()
                other.join(_OTHER_THREAD_S)  # without a lock it asks, too, and ends
            return super().partition_counts(topics)

    sink.cluster = Slow({"a": 1})
    assert sink.held({A: 1}) == {A: 1}
    other.join()
    assert held == [{A: 1}]
    assert sink.cluster.asked == [["a"]]


def test_the_cluster_is_asked_again_after_a_while_and_for_new_topics() -> None:
    sink = Holding(Cluster({"a": 1}))
    for _ in range(3):
        sink.held({A: 1}, {"a": FIRST})
    assert sink.cluster.asked == [["a"]]
    sink.held({A: 1, OTHER: 3})
    assert sink.cluster.asked == [["a"], ["a", "other"]]
    sink.cluster.counts = {}
    assert sink.held({A: 1}) == {A: 1}
    sink.watch.now += TOPICS_KNOWN_FOR_S + 1
    assert sink.held({A: 1}) == {}


def test_partitions_that_are_added_count_at_once() -> None:
    sink = Holding(Cluster({"a": 1}))
    assert sink.held({A: 1}) == {A: 1}
    sink.cluster.counts = {"a": 2}
    assert sink.held({A: 1, B: 2}) == {A: 1, B: 2}
    sink.held({A: 1, B: 2})
    assert sink.cluster.asked == [["a"], ["a"]]


def test_offsets_of_a_topic_of_another_cluster_that_has_the_same_name_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = Holding(Cluster({"a": 2, "other": 1}, {"a": SECOND}))
    for _ in range(3):
        assert sink.held({A: 5, B: 7, OTHER: 3}, {"a": FIRST, "other": FIRST}) == {OTHER: 3}
    assert len(sink.cluster.asked) == 1, "it is not asked for each batch"
    assert [record.getMessage().count("are not the ones") for record in caplog.records] == [1]


def test_a_topic_that_is_made_again_counts_at_once() -> None:
    sink = Holding(Cluster({"a": 1}))
    assert sink.held({A: 5}, {"a": FIRST}) == {A: 5}
    sink.cluster.ids = {"a": SECOND}
    assert sink.held({A: 2}, {"a": SECOND}) == {A: 2}
    assert sink.held({A: 5}, {"a": FIRST}) == {}
    assert sink.held({A: 3}, {"a": SECOND}) == {A: 3}


def test_a_query_that_begins_where_the_decision_ends_resumes() -> None:
    check_resumed("s", {A: 5, B: 7}, {A: 5, B: 7})


def test_partitions_that_the_decision_does_not_know_may_begin_anywhere() -> None:
    check_resumed("s", {A: 5}, {A: 5, OTHER: 0})


@pytest.mark.parametrize(
    ("ends_at", "begins_at", "reason"),
    [
        (
            {A: 5, B: 7},
            {A: 5, B: 6},
            "begins at offset 6 of a-1, and the last decision of sink 's' ends at 7",
        ),
        ({A: 5, B: 7}, {A: 5, B: 8}, "begins at offset 8"),
        ({}, {A: 0}, "holds no offsets of what the query reads"),
        ({A: 5}, None, "does not tell where it begins"),
    ],
)
def test_what_would_double_or_lose_rows_is_refused(
    ends_at: dict[TopicPartition, int], begins_at: dict[TopicPartition, int] | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_resumed("s", ends_at, begins_at)


def journal(directory: Path, *sources: object, named: bool = False, batch: int = 0) -> str:
    """A checkpoint whose batch has these offsets."""
    place = directory / "offsets" / str(batch)
    place.parent.mkdir(exist_ok=True)
    lines = [json.dumps(source) for source in sources]
    if named:
        lines = [f"source_{number}:{line}" for number, line in enumerate(lines)]
    place.write_text("\n".join(["v2" if named else "v1", "{}", *lines]))
    return str(directory)


@pytest.mark.parametrize("named", [False, True])
def test_beginnings_are_those_of_all_sources(tmp_path: Path, named: bool) -> None:
    first = {"a": {"0": 5}, "@from": {"a": {"0": 1}}}
    second = {"other": {"0": 9}, "@from": {"other": {"0": 0}}}
    checkpoint = journal(tmp_path, first, second, named=named)
    assert beginnings(checkpoint, 0) == {A: 1, OTHER: 0}
    assert batch_input(checkpoint, 0).next_offsets == {A: 5, OTHER: 9}


def test_ids_are_those_of_all_sources_that_tell_them(tmp_path: Path) -> None:
    first = {"a": {"0": 5}, "@ids": {"a": str(FIRST)}}
    checkpoint = journal(tmp_path, first, {"logOffset": 3}, {"b": {"0": 1}})
    assert read_topic_ids(checkpoint, 0) == batch_input(checkpoint, 0).topic_ids == {"a": FIRST}


@pytest.mark.parametrize("stranger", [{"other": {"0": 9}}, 17, {"logOffset": 3}, None])
def test_a_source_that_does_not_say_where_it_begins_makes_the_whole_unknown(
    tmp_path: Path, stranger: object
) -> None:
    checkpoint = journal(tmp_path, {"a": {"0": 5}, "@from": {"a": {"0": 1}}}, stranger)
    assert beginnings(checkpoint, 0) is None


def fingerprint(directory: Path, start: object, end: object) -> str:
    journal(directory, start, batch=4)
    return batch_input(journal(directory, end, batch=5), 5).fingerprint


def test_a_fingerprint_tells_what_a_batch_has_read(tmp_path: Path) -> None:
    start, end = {"a": {"0": 5}}, {"a": {"0": 9}}
    range_fingerprint = fingerprint(tmp_path, start, end)
    assert len(range_fingerprint) == 16
    assert fingerprint(tmp_path, start, {**end, "@from": {"b": {"0": 0}}}) == range_fingerprint, (
        "it says where partitions began"
    )
    assert fingerprint(tmp_path, {**start, "@from": {"b": {"0": 0}}}, end) == range_fingerprint
    assert fingerprint(tmp_path, {"a": {"0": 6}}, end) != range_fingerprint
    assert fingerprint(tmp_path, start, {"a": {"0": 8}}) != range_fingerprint
    assert fingerprint(tmp_path, start, {"logOffset": 3}) != range_fingerprint
    (tmp_path / "offsets" / "4").unlink()
    assert batch_input(str(tmp_path), 5).next_offsets == {}


def test_a_first_batch_is_recognised_by_its_beginning_too(tmp_path: Path) -> None:
    end = {"a": {"0": 9}}
    results = {
        batch_input(journal(tmp_path, {**end, "@from": {"a": {"0": start}}}), 0).fingerprint
        for start in (3, 4)
    }
    assert len(results) == 2


def journal_entry(directory: Path, entry: str, **files: int) -> None:
    """What Spark's file source notes in `entry`: the entry's number of each file."""
    place = directory / "sources" / "0" / entry
    place.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"path": f"file:///in/{name}", "timestamp": 1, "batchId": number}, separators=(",", ":"))
        for name, number in files.items()
    ]
    place.write_text("\n".join(["v1", *lines]))


def test_a_fingerprint_tells_which_files_a_batch_has_read(tmp_path: Path) -> None:
    start, end = {"logOffset": 8}, {"logOffset": 10}
    unknown = fingerprint(tmp_path, start, end)
    journal_entry(tmp_path, "9.compact", a=1, b=8, c=9)
    journal_entry(tmp_path, "10", d=10, e=10)
    known = fingerprint(tmp_path, start, end)
    assert known != unknown
    assert batch_input(str(tmp_path), 5).former_fingerprint == unknown
    journal_entry(tmp_path, "9.compact", z=1, c=9)
    journal_entry(tmp_path, "10", e=10, d=10)
    assert fingerprint(tmp_path, start, end) == known, (
        "the same files in another order, and others before them"
    )
    journal_entry(tmp_path, "10", d=10, e=10, new=10)
    assert fingerprint(tmp_path, start, end) != known
    journal_entry(tmp_path, "9.compact", other=9)
    journal_entry(tmp_path, "10", d=10, e=10)
    assert fingerprint(tmp_path, start, end) != known
    (tmp_path / "offsets" / "4").unlink()
    assert batch_input(str(tmp_path), 5).fingerprint != unknown


def test_all_files_of_the_first_batch_are_its_own(tmp_path: Path) -> None:
    results = set()
    for name in ("a", "b"):
        journal_entry(tmp_path, "0", **{name: 0})
        results.add(batch_input(journal(tmp_path, {"logOffset": 0}), 0).fingerprint)
    assert len(results) == 2


def test_a_journal_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sources" / "0" / "0").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"files of a source cannot be read from .*/sources/0/0"):
        batch_input(journal(tmp_path, {"logOffset": 0}), 0)


DECIDED = Decision(
    sink_id="s", query="q", batch=7, side=0, driver=(1, 2), participants=(), input_fingerprint="same"
)


def repeat(
    batch: int,
    read: dict[TopicPartition, int],
    fingerprint: str,
    *,
    is_whole: bool = True,
    former: str | None = None,
) -> None:
    given = BatchInput(
        next_offsets=read, fingerprint=fingerprint, is_whole=is_whole, former_fingerprint=former
    )
    check_repeated(BatchName(query="q", batch=batch), DECIDED, given, {A: 10, B: 20})


@pytest.mark.parametrize(
    ("batch", "read", "fingerprint"),
    [
        (7, {A: 10, B: 20}, "same"),
        (6, {A: 10, B: 19}, "other"),  # cut otherwise, but all of it is in the output
        (7, {OTHER: 99}, "same"),  # of another cluster: the decision does not know it
        (6, {A: 10, OTHER: 0}, "other"),  # nothing was read there
    ],
)
def test_a_repeated_batch_whose_rows_are_in_the_output_is_passed_over(
    batch: int, read: dict[TopicPartition, int], fingerprint: str
) -> None:
    repeat(batch, read, fingerprint)


@pytest.mark.parametrize(
    ("batch", "read", "reason"),
    [
        (7, {A: 9, B: 20}, "has read other records than the one that was decided"),
        (
            6,
            {A: 11, B: 1},
            "reads a-0 up to offset 11, and the output has it up to 10.* resume=true and sinkId",
        ),
        (6, {A: 9, OTHER: 99}, "what it reads of other-0, which the decision does not hold.*takeOver=true"),
        (7, {OTHER: 99}, "has read other records.*takeOver=true"),
    ],
)
def test_a_checkpoint_from_a_backup_that_cuts_batches_otherwise_is_refused(
    batch: int, read: dict[TopicPartition, int], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        repeat(batch, read, "other")


def test_files_that_an_earlier_batch_reads_may_be_new() -> None:
    repeat(7, {}, "same", is_whole=False)
    repeat(7, {}, "other", is_whole=False, former="same")  # decided by a former version
    with pytest.raises(ConfigError, match=r"has read other records.*takeOver=true"):
        repeat(7, {}, "other", is_whole=False, former="other")
    with pytest.raises(ConfigError, match=r"one of its sources is no Kafka topic.*takeOver=true"):
        repeat(6, {}, "other", is_whole=False)


@pytest.mark.parametrize(
    ("document", "is_whole"), [({"a": {"0": 5}}, True), ({"logOffset": 3}, False), (17, False)]
)
def test_a_batch_tells_whether_all_its_sources_are_topics(
    tmp_path: Path, document: object, is_whole: bool
) -> None:
    assert batch_input(journal(tmp_path, {"b": {"0": 1}}, document), 0).is_whole is is_whole


def test_a_source_that_has_given_nothing_hides_nothing(tmp_path: Path) -> None:
    checkpoint = journal(tmp_path, {"b": {"0": 1}})
    with (tmp_path / "offsets" / "0").open("a") as offsets:
        offsets.write("\n-")
    assert batch_input(checkpoint, 0).is_whole
