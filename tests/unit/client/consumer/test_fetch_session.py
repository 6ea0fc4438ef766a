"""Fetch sessions: the broker's picture is the client's wish, whatever gets lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.consumer.fetch_session import ClientFetchSession, PartitionFetch, SessionRequest
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def partition_fetch(offset: int = 0, topic_id: int = 1) -> PartitionFetch:
    return PartitionFetch(UUID(int=topic_id), offset, 3, 1 << 20)


def test_the_first_request_names_everything_and_later_ones_what_changed() -> None:
    session = ClientFetchSession()
    first = session.next({A: partition_fetch(), B: partition_fetch()})
    assert (first.session_id, first.epoch, set(first.partition_fetches)) == (0, 0, {A, B})
    session.answered(77)
    second = session.next({A: partition_fetch(10), B: partition_fetch()})
    assert (second.session_id, second.epoch, set(second.partition_fetches), set(second.forgotten)) == (
        77,
        1,
        {A},
        set(),
    )
    session.answered(77)
    third = session.next({A: partition_fetch(10), C: partition_fetch()})
    assert (third.epoch, set(third.partition_fetches), set(third.forgotten)) == (2, {C}, {B})


def test_a_broker_without_sessions_gets_everything_each_time() -> None:
    session = ClientFetchSession()
    for _ in range(3):
        request = session.next({A: partition_fetch()})
        assert (request.session_id, request.epoch, set(request.partition_fetches)) == (0, 0, {A})
        session.answered(0)


def test_a_forgotten_session_begins_again_without_an_id_and_a_miscounted_one_closes_the_old() -> None:
    for code, expected in (
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77),
    ):
        session = ClientFetchSession()
        session.next({A: partition_fetch()})
        session.answered(77)
        session.next({A: partition_fetch(1)})
        session.refused(code)
        request = session.next({A: partition_fetch(1)})
        assert (request.session_id, request.epoch, set(request.partition_fetches)) == (expected, 0, {A})
        session.answered(78)
        assert session.next({A: partition_fetch(2)}).session_id == 78


def test_after_a_lost_answer_everything_is_said_again() -> None:
    session = ClientFetchSession()
    session.next({A: partition_fetch(), B: partition_fetch()})
    session.answered(77)
    session.next({A: partition_fetch(5), B: partition_fetch()})
    session.lost()
    request = session.next({A: partition_fetch(5), B: partition_fetch()})
    assert (request.epoch, set(request.partition_fetches)) == (0, {A, B})


def test_a_topic_of_the_same_name_with_another_id_replaces_the_old_one() -> None:
    session = ClientFetchSession()
    session.next({A: partition_fetch(topic_id=1)})
    session.answered(77)
    request = session.next({A: partition_fetch(topic_id=2)})
    assert request.partition_fetches == {A: partition_fetch(topic_id=2)}
    assert request.forgotten == {A: partition_fetch(topic_id=1)}


@dataclass
class BrokerSide:
    """What a broker keeps of one session, after KIP-227."""

    session_id: int = 0
    epoch: int = 0
    held: dict[tuple[UUID, TopicPartition], PartitionFetch] = field(default_factory=dict)
    last_id: int = 100

    def take(self, request: SessionRequest) -> tuple[ErrorCode, int]:
        if request.epoch == 0:
            self.last_id += 1
            self.session_id, self.epoch, self.held = self.last_id, 1, {}
        elif request.session_id != self.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0
        elif request.epoch != self.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0
        else:
            self.epoch += 1
            for tp, gone in request.forgotten.items():
                self.held.pop((gone.topic_id, tp), None)
        for tp, wanted in request.partition_fetches.items():
            self.held[wanted.topic_id, tp] = wanted
        return ErrorCode.NONE, self.session_id


wanted = st.dictionaries(
    st.sampled_from([A, B, C]), st.builds(partition_fetch, st.integers(0, 3), st.integers(1, 2))
)
fates = st.sampled_from(["answered", "answered", "answered", "request lost", "answer lost", "evicted"])


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(wanted, fates), max_size=30))
def test_whenever_the_broker_answers_it_holds_exactly_what_is_wanted(
    steps: list[tuple[dict[TopicPartition, PartitionFetch], str]],
) -> None:
    session, broker = ClientFetchSession(), BrokerSide()
    for partition_fetches, fate in steps:
        if fate == "evicted":
            broker.session_id = -1
        request = session.next(dict(partition_fetches))
        if fate == "request lost":
            session.lost()
            continue
        code, session_id = broker.take(request)
        if fate == "answer lost":
            session.lost()
        elif code is not ErrorCode.NONE:
            session.refused(code)
        else:
            session.answered(session_id)
            assert broker.held == {
                (fetch_of_partition.topic_id, tp): fetch_of_partition
                for tp, fetch_of_partition in partition_fetches.items()
            }
