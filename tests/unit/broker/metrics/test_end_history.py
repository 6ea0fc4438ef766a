"""How old unread records are, from notes of where partitions ended."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.metrics.end_history import EndHistory, EndNotes
from odradek.model.ids import TopicPartition

NAME = TopicPartition("t", 0)
step = st.tuples(st.integers(0, 5), st.integers(1, 60).map(lambda halves: halves / 2))
growth = st.lists(step, min_size=1, max_size=120)


def times_of(steps: list[tuple[int, float]]) -> tuple[EndNotes, list[float], float]:
    """The notes of a partition, when each of its records was written, and the time now. A note follows each write at once."""
    notes, written, now = EndNotes(), list[float](), 0.0
    notes.note(0, now)
    for count, pause in steps:
        now += pause
        written += [now] * count
        notes.note(len(written), now)
    return notes, written, now


@given(growth)
def test_an_age_is_within_the_notes_around_it(steps: list[tuple[int, float]]) -> None:
    notes, written, now = times_of(steps)
    assert len(notes) <= 32
    for offset in range(len(written)):
        age_s = notes.age_s(offset, now)
        assert 0.0 <= age_s <= now
    ages = [notes.age_s(offset, now) for offset in range(len(written))]
    assert ages == sorted(ages, reverse=True), "an earlier record is never younger"
    assert notes.age_s(len(written), now) == 0.0, "there is nothing to read"


@given(st.lists(step, min_size=1, max_size=14))
def test_a_last_record_of_each_write_has_its_own_time(steps: list[tuple[int, float]]) -> None:
    """While no note was dropped, the interpolation is exact where a note is."""
    notes, written, now = times_of(steps)
    for offset, at in enumerate(written):
        if offset + 1 == len(written) or written[offset + 1] > at:
            assert abs(notes.age_s(offset, now) - (now - at)) < 1e-6


def test_a_partition_that_stood_still_does_not_make_its_next_record_old() -> None:
    notes = EndNotes()
    for second in range(1_000):
        notes.note(10, float(second))
    notes.note(11, 1_000.0)
    assert 0.0 <= notes.age_s(10, 1_000.0) <= 1.0


def test_a_record_from_before_the_first_note_is_at_least_as_old() -> None:
    notes = EndNotes()
    notes.note(10, 5.0)
    assert notes.age_s(3, 65.0) == 60.0


def test_a_topic_that_is_made_again_starts_empty() -> None:
    notes = EndNotes()
    notes.note(1_000, 0.0)
    notes.note(5, 100.0)
    assert notes.age_s(0, 101.0) == 1.0


def test_partitions_that_no_group_reads_are_let_go() -> None:
    history = EndHistory()
    for index in range(5):
        history.note(TopicPartition("t", index), 1, 0.0)
    history.keep({NAME: None}.keys())
    assert len(history) == 1
    assert history.age_s(TopicPartition("t", 3), 0, 9.0) == 0.0
