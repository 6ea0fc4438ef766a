"""Share sessions: who may follow whom, and in which order partitions are read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.broker.sessions.share_sessions import (
    ALL_PARTITIONS_MAX,
    PARTITIONS_MAX,
    ShareSessionKey,
    ShareSessions,
)
from odradek.model.errors import ErrorCode, KafkaError

ANNE, BERT = ShareSessionKey("g", "anne"), ShareSessionKey("g", "bert")
HERE: Any = object()
ELSEWHERE: Any = object()
PLACES = [(UUID(int=1), number) for number in range(3)]


def test_epochs_follow_one_another() -> None:
    sessions = ShareSessions()
    session = sessions.open(ANNE, HERE, 2)
    session.advance(1)
    for wrong in (0, 1, 3):
        with pytest.raises(KafkaError) as refused:
            session.advance(wrong)
        assert refused.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.advance(2)


def test_the_epoch_after_the_last_is_the_first() -> None:
    session = ShareSessions().open(ANNE, HERE, 1)
    session.epoch = 2**31 - 1
    session.advance(2**31 - 1)
    assert session.epoch == 1


def test_there_are_no_more_sessions_than_allowed_but_a_member_may_begin_again() -> None:
    sessions = ShareSessions()
    sessions.open(ANNE, HERE, 1)
    with pytest.raises(KafkaError) as refused:
        sessions.open(BERT, HERE, 1)
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.open(ANNE, ELSEWHERE, 1)
    assert sessions.of_connection(HERE) == []
    assert sessions.of_connection(ELSEWHERE) == [ANNE]
    sessions.close(ANNE)
    sessions.open(BERT, HERE, 1)


def test_each_fetch_begins_with_another_partition() -> None:
    sessions = ShareSessions()
    session = sessions.open(ANNE, HERE, 1)
    sessions.change(session, PLACES, [])
    session.rotate()
    assert list(session.partitions) == [PLACES[1], PLACES[2], PLACES[0]]
    sessions.change(session, [PLACES[1]], [PLACES[2]])
    assert list(session.partitions) == [PLACES[1], PLACES[0]]


def places(topic: int, count: int) -> list[tuple[UUID, int]]:
    return [(UUID(int=topic), number) for number in range(count)]


def test_a_session_that_would_read_too_many_partitions_stays_as_it_was() -> None:
    sessions = ShareSessions()
    session = sessions.open(ANNE, HERE, 1)
    sessions.change(session, places(1, PARTITIONS_MAX), [])
    with pytest.raises(KafkaError) as refused:
        sessions.change(session, places(2, 1), [])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(session.partitions) == PARTITIONS_MAX
    sessions.change(session, places(2, 1), places(1, 1))
    assert len(session.partitions) == PARTITIONS_MAX


def test_all_sessions_together_have_a_limit_until_one_ends() -> None:
    sessions = ShareSessions()
    keys = [ShareSessionKey("g", str(number)) for number in range(ALL_PARTITIONS_MAX // PARTITIONS_MAX + 1)]
    *others, last = [sessions.open(key, HERE, 100) for key in keys]
    for session in others:
        sessions.change(session, places(1, PARTITIONS_MAX), [])
    with pytest.raises(KafkaError) as refused:
        sessions.change(last, places(1, 1), [])
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.close(keys[0])
    sessions.close(keys[0])
    sessions.change(last, places(1, PARTITIONS_MAX), [])
    again = sessions.open(keys[1], ELSEWHERE, 100)
    sessions.change(again, places(1, PARTITIONS_MAX), [])


def test_a_session_belongs_to_the_connection_that_it_moved_to() -> None:
    sessions = ShareSessions()
    session = sessions.open(ANNE, HERE, 2)
    sessions.open(BERT, HERE, 2)
    sessions.move(session, ELSEWHERE)
    assert (sessions.of_connection(HERE), sessions.of_connection(ELSEWHERE)) == ([BERT], [ANNE])
    sessions.close(BERT)
    assert sessions.of_connection(HERE) == []
    assert sessions.any_of("g")
    sessions.close(ANNE)
    assert not sessions.any_of("g")
