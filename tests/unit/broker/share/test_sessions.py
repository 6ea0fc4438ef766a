"""Share sessions: who may follow whom, and in which order partitions are read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.broker.share.sessions import ShareSessionKey, ShareSessions
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
    session = ShareSessions().open(ANNE, HERE, 1)
    session.change(PLACES, [])
    session.rotate()
    assert list(session.partitions) == [PLACES[1], PLACES[2], PLACES[0]]
    session.change([PLACES[1]], [PLACES[2]])
    assert list(session.partitions) == [PLACES[1], PLACES[0]]
