"""Answers that no one reads: how much room others have, and who must go."""

from __future__ import annotations

from odradek.net.unread_answers import PROGRESS_BYTES, STALL_SECONDS, UnreadAnswers

MEBIBYTE = 1 << 20
LIMIT = 256 * MEBIBYTE


def test_room_shrinks_to_small_pieces_before_it_ends() -> None:
    answers = UnreadAnswers(LIMIT)
    assert answers.room_bytes() == LIMIT * 3 // 4
    answers.hold("a", LIMIT * 3 // 4, sent_bytes=0, now=0.0)
    assert answers.room_bytes() == MEBIBYTE
    answers.hold("b", LIMIT // 4, sent_bytes=0, now=0.0)
    assert answers.room_bytes() == 0
    answers.forget("a")
    assert answers.room_bytes() == LIMIT // 2


def test_who_holds_most_and_takes_nothing_goes_first_and_only_when_room_is_short() -> None:
    answers = UnreadAnswers(LIMIT)
    answers.hold("small", 10 * MEBIBYTE, sent_bytes=0, now=0.0)
    answers.hold("large", 50 * MEBIBYTE, sent_bytes=0, now=0.0)
    assert answers.stuck(100.0) is None
    answers.hold("reads", 100 * MEBIBYTE, sent_bytes=0, now=0.0)
    assert answers.stuck(STALL_SECONDS / 2) is None
    answers.note_sent("reads", PROGRESS_BYTES, STALL_SECONDS)
    assert answers.stuck(STALL_SECONDS) == "large"
    answers.forget("large")
    assert answers.stuck(STALL_SECONDS) is None, "there is room now"


def test_who_takes_a_byte_now_and_then_takes_nothing() -> None:
    answers = UnreadAnswers(LIMIT)
    answers.hold("trickles", 1, sent_bytes=5, now=0.0)
    answers.note_sent("trickles", 5 + PROGRESS_BYTES - 1, 299.0)
    assert answers.stalled(299.0, 300.0) == []
    assert answers.stalled(300.0, 300.0) == ["trickles"]


def test_an_answer_from_a_file_holds_a_connection_but_no_memory() -> None:
    answers = UnreadAnswers(MEBIBYTE)
    answers.hold("mapped", 0, sent_bytes=0, now=0.0)
    answers.hold("memory", MEBIBYTE, sent_bytes=0, now=0.0)
    assert answers.stuck(STALL_SECONDS) == "memory"
    answers.forget("memory")
    assert answers.stuck(STALL_SECONDS) is None
    assert answers.stalled(300.0, 300.0) == ["mapped"]
