"""Share sessions: the broker's picture is the client's, whatever gets lost. The broker's own sessions are the model."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.sessions.share_sessions import ShareSessionKey, ShareSessions
from odradek.client.share.share_record import SharePartitionId
from odradek.client.share.share_session import ClientShareSession
from odradek.model.errors import ErrorCode, KafkaError

PARTITIONS = tuple(
    SharePartitionId(topic, UUID(int=number), index)
    for number, topic in enumerate(("a", "b"))
    for index in (0, 1)
)
A0, A1, B0, B1 = PARTITIONS
KEY = ShareSessionKey("g", "me")


def test_the_first_request_names_all_partitions_and_later_ones_what_changed() -> None:
    session = ClientShareSession(1)
    first = session.next_fetch([A0, A1])
    assert (first.epoch, first.added, first.forgotten, session.is_open) == (0, (A0, A1), (), False)
    session.succeeded()
    second = session.next_fetch([A1, B0])
    assert (second.epoch, second.added, second.forgotten, session.is_open) == (1, (B0,), (A0,), True)
    session.succeeded()
    assert session.next_acknowledgement() == 2
    session.succeeded()
    third = session.next_fetch([A1, B0])
    assert (third.epoch, third.added, third.forgotten) == (3, (), ())


def test_a_session_that_ended_is_another_one_afterwards() -> None:
    session = ClientShareSession(1)
    session.next_fetch([A0])
    session.succeeded()
    before = session.source
    session.end()
    assert (before, session.source) == ((1, 0), (1, 1))
    assert (session.next_fetch([A0]).epoch, session.is_open) == (0, False)


def test_a_session_is_not_opened_by_an_acknowledgement() -> None:
    with pytest.raises(AssertionError, match="opened by ShareFetch"):
        ClientShareSession(1).next_acknowledgement()


class ModelBroker:
    """The broker's side, without its network."""

    def __init__(self) -> None:
        self.sessions = ShareSessions()
        self.connection: Any = object()

    def fetch(self, request: Any) -> None:
        if request.epoch == 0:
            session = self.sessions.open(KEY, self.connection, 10)
        else:
            session = self.sessions.find(KEY)
            session.advance(request.epoch)
        self.sessions.change(
            session,
            [(partition.topic_id, partition.partition) for partition in request.added],
            [(partition.topic_id, partition.partition) for partition in request.forgotten],
        )

    def acknowledge(self, epoch: int) -> None:
        self.sessions.find(KEY).advance(epoch)

    @property
    def reads(self) -> set[tuple[UUID, int]]:
        return set(self.sessions.find(KEY).partitions)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fetch", "acknowledge", "lost before", "lost after", "forgotten"]),
        st.sets(st.sampled_from(PARTITIONS)),
    ),
    max_size=20,
)


@given(STEPS)
def test_after_each_fetch_the_broker_reads_exactly_what_is_wanted(
    steps: list[tuple[str, set[SharePartitionId]]],
) -> None:
    session, broker = ClientShareSession(1), ModelBroker()
    for kind, wanted in steps:
        if kind == "forgotten":
            broker.sessions.close(KEY)
            continue
        try:
            if kind == "acknowledge":
                if session.is_open:
                    broker.acknowledge(session.next_acknowledgement())
                    session.succeeded()
                continue
            request = session.next_fetch(sorted(wanted))
            if kind != "lost before":
                broker.fetch(request)
        except KafkaError as error:
            if error.code not in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH):
                raise
            session.end()
            continue
        if kind == "fetch":
            session.succeeded()
            assert broker.reads == {(partition.topic_id, partition.partition) for partition in wanted}
        else:
            session.end()
    request = session.next_fetch([A0, B1])
    try:
        broker.fetch(request)
    except KafkaError:
        session.end()
        broker.fetch(session.next_fetch([A0, B1]))
    session.succeeded()
    assert (
        broker.reads
        == {(A0.topic_id, 0), (B1.topic_id, 1)}
        == {(partition.topic_id, partition.partition) for partition in session.partitions}
    )
