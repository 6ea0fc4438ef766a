"""A redrive sends each letter once, whatever is filtered out, wherever it is cut off."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.dead_letters.headers import FailedConsumer, Origin, RecordFailure
from odradek.dead_letters.letter import DeadLetter
from odradek.dead_letters.redriven import RedrivenState
from odradek.dead_letters.selection import Selection
from odradek.dead_letters.sending_back import Fate, RedriveCore, RedriveRequest, record_to_send
from odradek.model.errors import ConfigError, KafkaError
from odradek.model.ids import NO_TIMESTAMP

TOPIC_ID = UUID(int=7)
ERRORS = ("KeyError", "ValueError", "OSError")


def letter(offset: int, *, partition: int = 0, error: str = "KeyError", **more: Any) -> DeadLetter:
    fields: dict[str, Any] = {
        "origin": Origin(topic="orders", partition=3, offset=1000 * partition + offset, timestamp_ms=50),
        "by": FailedConsumer(group="billing"),
        "redrive_count": 0,
        "key": b"k",
        "value": b"v",
        "own_headers": (("trace", b"\x01"),),
    }
    return DeadLetter(
        topic="orders.dlq",
        partition=partition,
        offset=offset,
        failed_at_ms=9,
        failure=RecordFailure(exception=error, message=""),
        dialect="odradek",
        **{**fields, **more},
    )


class Cluster:
    """A dead-letter topic and the topic of notes, in which a transaction counts as a whole or not at all."""

    def __init__(self, letters: list[DeadLetter]) -> None:
        self.letters = letters
        self.notes: list[tuple[bytes | None, bytes | None]] = []
        self.sent: list[tuple[int, int]] = []

    def redrive(
        self, request: RedriveRequest, *, a_transaction: int = 2, crash_after: int | None = None
    ) -> RedriveCore:
        """`crash_after`: so many letters; what the open transaction holds is then gone."""
        core = RedriveCore(request, RedrivenState("orders.dlq", TOPIC_ID, self.notes))
        for partition in {dead_letter.partition for dead_letter in self.letters}:
            core.begin(partition, 0)
        pending: list[tuple[int, int]] = []
        reached: dict[int, int] = {}

        def commit() -> None:
            for partition, position in reached.items():
                core.settle(partition, position)
            self.notes += list(core.drain_records())
            self.sent += pending
            pending.clear()

        for count, text in enumerate(self.letters):
            if count == crash_after:
                return core
            if core.has_enough:
                break
            if core.fate(text) is Fate.SENT:
                pending.append((text.partition, text.offset))
            reached[text.partition] = text.offset + 1
            if len(pending) >= a_transaction:
                commit()
        if pending:
            commit()
        return core


placed = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 40), st.sampled_from(ERRORS)),
    unique_by=lambda entry: entry[:2],
    max_size=30,
).map(lambda results: [letter(o, partition=p, error=e) for p, o, e in sorted(results)])
redrives = st.lists(
    st.tuples(
        st.lists(st.sampled_from(ERRORS), max_size=2).map(tuple),
        st.none() | st.integers(0, 30),
        st.none() | st.integers(1, 5),
    ),
    max_size=5,
)


@given(placed, redrives)
def test_each_letter_is_sent_once_and_none_is_out_of_reach(
    letters: list[DeadLetter], runs: list[tuple[tuple[str, ...], int | None, int | None]]
) -> None:
    cluster = Cluster(letters)
    for errors, crash_after, count_max in runs:
        request = RedriveRequest(selection=Selection(errors=errors), count_max=count_max)
        before = len(cluster.sent)
        cluster.redrive(request, crash_after=crash_after)
        by_place = {
            (dead_letter.partition, dead_letter.offset): dead_letter.failure.exception
            for dead_letter in letters
        }
        assert all(not errors or by_place[place] in errors for place in cluster.sent[before:])
    cluster.redrive(RedriveRequest())
    assert Counter(cluster.sent) == Counter(
        {(dead_letter.partition, dead_letter.offset): 1 for dead_letter in letters}
    )
    state = RedrivenState("orders.dlq", TOPIC_ID, cluster.notes)
    assert all(dead_letter.offset in state.of(dead_letter.partition) for dead_letter in letters)


def test_a_topic_made_again_begins_again() -> None:
    cluster = Cluster([letter(0), letter(1)])
    cluster.redrive(RedriveRequest())
    assert 0 in RedrivenState("orders.dlq", TOPIC_ID, cluster.notes).of(0)
    assert 0 not in RedrivenState("orders.dlq", UUID(int=8), cluster.notes).of(0)


def test_letters_can_be_sent_again() -> None:
    cluster = Cluster([letter(0), letter(1)])
    cluster.redrive(RedriveRequest())
    cluster.redrive(RedriveRequest(again=True))
    assert Counter(cluster.sent) == {(0, 0): 2, (0, 1): 2}


def test_a_letter_that_was_written_twice_is_sent_once() -> None:
    origin = Origin(topic="orders", partition=0, offset=5)
    copies = [letter(0, origin=origin), letter(3, origin=origin)]
    others = [letter(4, origin=origin, by=FailedConsumer(group="shipping"))]
    cluster = Cluster(copies + others)
    core = cluster.redrive(RedriveRequest())
    assert cluster.sent == [(0, 0), (0, 4)]
    assert core.counts[Fate.COPY] == 1
    assert cluster.redrive(RedriveRequest()).counts[Fate.DONE_BEFORE] == 3


def test_so_many_letters_are_remembered_as_the_limit_says_and_the_latest_longest() -> None:
    first, second, third = (Origin(topic="orders", partition=0, offset=number) for number in range(3))
    met = [first, second, first, third, first, second]
    core = RedriveCore(RedriveRequest(), RedrivenState("orders.dlq", TOPIC_ID), remembered_count=2)
    fates = [core.fate(letter(number, origin=origin)) for number, origin in enumerate(met)]
    assert fates == [Fate.SENT, Fate.SENT, Fate.COPY, Fate.SENT, Fate.COPY, Fate.SENT]


def test_a_letter_without_an_origin_is_left_unless_a_topic_is_named() -> None:
    cluster = Cluster([letter(0, origin=None), letter(1)])
    assert cluster.redrive(RedriveRequest()).counts[Fate.WITHOUT_ORIGIN] == 1
    cluster.redrive(RedriveRequest(to="elsewhere"))
    assert cluster.sent == [(0, 1), (0, 0)]


def test_notes_are_few_and_those_of_letters_that_are_gone_are_dropped() -> None:
    cluster = Cluster(
        [letter(offset) for offset in range(0, 40, 2)]
    )  # markers of transactions lie in between
    cluster.redrive(RedriveRequest(), a_transaction=3)
    assert dict(RedrivenState("orders.dlq", TOPIC_ID, cluster.notes).of(0)) == {0: 39}
    state = RedrivenState("orders.dlq", TOPIC_ID, cluster.notes)
    core = RedriveCore(RedriveRequest(), state)
    core.begin(0, 50)  # retention took all of them, and new ones came
    core.fate(letter(60))
    core.settle(0, 61)
    assert dict(RedrivenState("orders.dlq", TOPIC_ID, [*cluster.notes, *core.drain_records()]).of(0)) == {
        50: 61
    }


def test_a_note_by_another_hand_is_refused() -> None:
    with pytest.raises(KafkaError, match="was not written by odradek"):
        RedrivenState("orders.dlq", TOPIC_ID, [(f"{TOPIC_ID}/0/5".encode(), b"12")])
    assert 5 not in RedrivenState("orders.dlq", TOPIC_ID, [(None, b""), (b"other", b"?")]).of(0)


def test_a_record_goes_home_as_it_was_with_a_count() -> None:
    sent = record_to_send(
        letter(0, own_headers=(("trace", b"\x01"), ("__dlq.redrive.count", b"1")), redrive_count=1), None, 4
    )
    assert (sent.topic, sent.partition, sent.key, sent.value, sent.timestamp_ms) == (
        "orders",
        3,
        b"k",
        b"v",
        50,
    )
    assert sent.headers == (("trace", b"\x01"), ("__dlq.redrive.count", b"2"))


def test_a_partition_that_is_no_more_leaves_the_choice_to_the_key() -> None:
    assert record_to_send(letter(0), None, 3).partition is None


def test_elsewhere_it_keeps_the_headers_that_say_where_it_was() -> None:
    sent = record_to_send(letter(5), "orders-test", 9)
    assert (sent.topic, sent.partition) == ("orders-test", None)
    assert dict(sent.headers)["__dlq.errors.offset"] == b"5"
    assert "__dlq.errors.exception" not in dict(sent.headers)
    assert record_to_send(letter(5), "orders", 9).partition == 3
    bare = record_to_send(letter(5, origin=None), "orders-test", 9)
    assert (bare.topic, bare.timestamp_ms) == ("orders-test", None)


def test_two_records_of_one_place_are_both_sent_when_no_timestamp_tells_them_apart() -> None:
    origin = Origin(topic="orders", partition=0, offset=0, timestamp_ms=NO_TIMESTAMP)
    first, second = (
        letter(0, origin=origin),
        letter(1, origin=origin, value=b"of the topic that was made again"),
    )
    cluster = Cluster([first, second, letter(2, origin=origin), letter(3, origin=origin, own_headers=())])
    core = cluster.redrive(RedriveRequest())
    assert cluster.sent == [(0, 0), (0, 1), (0, 3)]
    assert core.counts[Fate.COPY] == 1


HOSTILE = st.sampled_from(
    [
        "__odradek_pipelines",
        "__odradek_audit",
        "__consumer_offsets",
        "_schemas",
        "_odradek-sql-default_-commands",
        "app-store-changelog",
        "app-store-repartition",
        "payments",
        "order",
        "orders.dlq",
        "orders.dlq.dlq",
        "o",
        "",
    ]
)


@given(st.lists(HOSTILE, min_size=1, max_size=8), st.booleans())
def test_a_header_alone_sends_no_letter_anywhere(targets: list[str], again: bool) -> None:
    letters = [
        letter(offset, origin=Origin(topic=target, partition=0, offset=offset))
        for offset, target in enumerate(targets)
    ]
    cluster = Cluster(letters)
    core = cluster.redrive(RedriveRequest(again=again))
    assert cluster.sent == []
    assert core.counts[Fate.INTERNAL] + core.counts[Fate.NOT_ALLOWED] == len(letters)
    assert core.refused_topics == Counter(targets)
    allowed = RedriveRequest(allowed_topics=frozenset({"payments"}))
    assert cluster.redrive(allowed).counts[Fate.SENT] == targets.count("payments")
    elsewhere = cluster.redrive(RedriveRequest(to="inspected", again=True))
    assert elsewhere.counts[Fate.SENT] == len(letters)


@pytest.mark.parametrize("topic", ["__odradek_pipelines", "__consumer_offsets", "_schemas", "a-b-changelog"])
def test_an_internal_topic_cannot_be_named_either(topic: str) -> None:
    with pytest.raises(ConfigError, match="internal topic"):
        RedriveRequest(to=topic)
    with pytest.raises(ConfigError, match="internal topic"):
        RedriveRequest(allowed_topics=frozenset({topic}))


@pytest.mark.parametrize("name", ["orders.dlq", "orders-dlt", "orders.billing.dlq", "orders_dead"])
def test_a_letter_goes_back_to_the_topic_that_its_topic_is_named_after(name: str) -> None:
    core = RedriveCore(RedriveRequest(), RedrivenState(name, TOPIC_ID, []))
    core.begin(0, 0)
    dead_letter = replace(letter(0), topic=name)
    assert core.fate(dead_letter) is Fate.SENT


def test_names_of_refused_topics_are_bounded() -> None:
    letters = [
        letter(offset, origin=Origin(topic=f"t{offset}", partition=0, offset=0)) for offset in range(150)
    ]
    core = Cluster(letters).redrive(RedriveRequest())
    assert core.counts[Fate.NOT_ALLOWED] == 150
    assert len(core.refused_topics) == 100
