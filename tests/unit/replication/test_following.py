"""What a follower asks next, and what an answer means: the fetch loop without its I/O."""

from dataclasses import dataclass, field
from uuid import UUID

import pytest

from odradek.model.errors import ErrorCode
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol.messages.data.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.replication.following import (
    FetchResultAction,
    FetchState,
    FetchTerms,
    fetch_result_action,
    pause_s,
)

FIRST = LeaderEpoch(1)
TERMS = FetchTerms(
    me=BrokerId(2),
    broker_epoch=77,
    partition_bytes_max=1000,
    response_bytes_max=5000,
    bytes_min=1,
    wait_ms_max=500,
    idle_wait_ms_max=3000,
    pause_s_max=1.0,
)


@dataclass
class Log:
    latest_epoch: int = 0
    start_is_doubted: bool = False


@dataclass(eq=False)
class Replica:
    number: int
    leader_epoch: LeaderEpoch = FIRST
    high_watermark: int = 0
    start_offset: int = 0
    durable_offset: int = 0
    is_durable: bool = True
    log: Log = field(default_factory=Log)

    @property
    def topic_id(self) -> UUID:
        return UUID(int=7)

    @property
    def name(self) -> TopicPartition:
        return TopicPartition("t", self.number)


def asked(request: FetchRequest | None) -> dict[int, tuple[int, int, int]]:
    """Number of each partition that is named: (leader epoch, fetch offset, last epoch)."""
    assert request is not None
    return {
        partition.partition: (
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.last_fetched_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    }


def forgotten(request: FetchRequest | None) -> list[int]:
    assert request is not None
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]


def answer(
    *partitions: PartitionData, session_id: int = 5, error: ErrorCode = ErrorCode.NONE
) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=UUID(int=7), partitions=list(partitions))]
    return FetchResponse(session_id=session_id, error_code=error, responses=topics if partitions else [])


def partition_data(number: int, code: ErrorCode = ErrorCode.NONE) -> PartitionData:
    return PartitionData(partition_index=number, error_code=code, high_watermark=0)


def following(*replicas: Replica) -> FetchState:
    state = FetchState()
    for replica in replicas:
        assert state.follow(replica, 0.0)
    return state


def in_session(*replicas: Replica) -> FetchState:
    state = following(*replicas)
    state.next(0.0, TERMS)
    state.answered(answer(*(partition_data(replica.number) for replica in replicas)))
    return state


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    state = following(Replica(0, durable_offset=10, log=Log(4)), Replica(1))
    request = state.next(0.0, TERMS)
    assert asked(request) == {0: (1, 10, 4), 1: (1, 0, 0)}
    assert request is not None
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 77)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 5000)


def test_partitions_of_new_topics_are_first_fetched_together() -> None:
    old, new = Replica(0), [Replica(number, LeaderEpoch(0)) for number in range(1, 30)]
    state = in_session(old)
    for replica in new[:2]:
        assert state.follow(replica, 1.0)
    assert state.has_news
    assert state.news_due_in(1.0) == pytest.approx(0.005)
    assert asked(state.next(1.0, TERMS)) == {}, "the others are on their way"
    assert state.follow(new[2], 1.004)
    assert asked(state.next(1.006, TERMS)) == {}
    state.unfollow(new[0])
    assert sorted(asked(state.next(1.009, TERMS))) == [2, 3]
    assert state.news_due_in(1.009) == 0.0
    for number, replica in enumerate(new[3:]):
        assert state.follow(replica, 2.0 + 0.004 * number)
    assert state.news_due_in(2.05) == 0.0, "they do not wait for the last one for ever"
    assert sorted(asked(state.next(2.05, TERMS))) == list(range(4, 30))


def test_a_request_that_names_everything_leaves_new_partitions_out_until_they_are_due() -> None:
    state = FetchState()
    assert state.follow(Replica(0, LeaderEpoch(0)), 1.0)
    assert state.next(1.0, TERMS) is None
    assert state.due_in(1.0) == pytest.approx(0.005)
    assert state.follow(Replica(0, LeaderEpoch(1)), 1.0), "another leader has records of it, perhaps"
    assert asked(state.next(1.0, TERMS)) == {0: (1, 0, 0)}


def test_later_requests_name_only_what_changed() -> None:
    first, two = Replica(0), Replica(1)
    state = in_session(first, two)
    request = state.next(0.0, TERMS)
    assert asked(request) == {}
    assert request is not None
    assert (request.session_id, request.session_epoch) == (5, 1)
    state.answered(answer(partition_data(0)))
    first.durable_offset = 3
    two.durable_offset = 99  # nothing was said of it: it cannot have changed by this loop
    request = state.next(0.0, TERMS)
    assert asked(request) == {0: (1, 3, 0)}
    assert request is not None
    assert request.session_epoch == 2


def test_the_leader_hears_of_a_high_watermark_that_moved() -> None:
    replica = Replica(0)
    state = in_session(replica)
    replica.high_watermark = 8
    request = state.next(0.0, TERMS)
    assert request is not None
    assert [part.high_watermark for topic in request.topics for part in topic.partitions] == [8]


def test_a_log_that_is_not_durable_up_to_its_end_is_asked_for_when_it_is() -> None:
    first, two = Replica(0, durable_offset=5, is_durable=False), Replica(1)
    state = following(first, two)
    request = state.next(0.0, TERMS)
    assert asked(request) == {1: (1, 0, 0)}
    assert request is not None
    assert request.max_wait_ms < 10
    state.answered(answer(partition_data(1)))
    assert asked(state.next(0.1, TERMS)) == {}
    state.answered(answer())
    first.durable_offset, first.is_durable = 7, True
    assert asked(state.next(0.2, TERMS)) == {0: (1, 7, 0)}


def test_what_is_followed_no_longer_leaves_the_session() -> None:
    first, two = Replica(0), Replica(1)
    state = in_session(first, two)
    state.unfollow(two)
    request = state.next(0.0, TERMS)
    assert forgotten(request) == [1]
    assert asked(request) == {}


def test_without_anything_to_follow_there_is_nothing_to_ask() -> None:
    replica = Replica(0)
    state = in_session(replica)
    state.unfollow(replica)
    assert not state
    assert state.next(0.0, TERMS) is None
    state.follow(Replica(2), 0.0)
    request = state.next(0.0, TERMS)
    assert request is not None
    assert request.session_epoch == 0
    assert asked(request) == {2: (1, 0, 0)}


def test_an_answer_is_dropped_when_the_epoch_changed_meanwhile() -> None:
    replica = Replica(0)
    state = following(replica)
    state.next(0.0, TERMS)
    replica.leader_epoch = LeaderEpoch(2)
    assert state.follow(replica, 0.0)
    assert state.answered(answer(partition_data(0))) == []
    assert asked(state.next(0.0, TERMS)) == {0: (2, 0, 0)}


def test_an_answer_is_dropped_when_the_partition_was_given_up_and_taken_up_again_meanwhile() -> None:
    replica = Replica(0)
    state = following(replica)
    state.next(0.0, TERMS)
    state.unfollow(replica)
    state.follow(replica, 0.0)
    assert state.answered(answer(partition_data(0))) == []
    state.next(0.0, TERMS)
    assert state.answered(answer(partition_data(0))) != []


def test_under_another_epoch_a_partition_leaves_the_session_and_comes_back_in_one_request() -> None:
    first, two = Replica(0), Replica(1)
    state = in_session(first, two)
    first.leader_epoch = LeaderEpoch(2)
    state.follow(first, 0.0)
    request = state.next(0.0, TERMS)
    assert (forgotten(request), asked(request)) == ([0], {0: (2, 0, 0)})
    state.answered(answer(partition_data(0)))
    request = state.next(0.0, TERMS)
    assert (forgotten(request), asked(request)) == ([], {})


def test_so_does_one_that_was_opened_again_under_the_same_epoch() -> None:
    state = in_session(Replica(0))
    assert state.follow(Replica(0), 0.0)
    request = state.next(0.0, TERMS)
    assert (forgotten(request), asked(request)) == ([0], {0: (1, 0, 0)})


def test_following_again_under_the_same_epoch_changes_nothing() -> None:
    replica = Replica(0)
    state = in_session(replica)
    assert not state.follow(replica, 0.0)
    assert asked(state.next(0.0, TERMS)) == {}


def test_a_partition_in_trouble_is_left_out_until_its_pause_is_over_and_others_go_on() -> None:
    first, two = Replica(0), Replica(1)
    state = following(first, two)
    state.next(0.0, TERMS)
    partition = state.answered(answer(partition_data(0, ErrorCode.UNKNOWN_LEADER_EPOCH), partition_data(1)))
    assert partition is not None
    state.pause(partition[0][0], 0.0, 1.0, 0.5)
    request = state.next(0.0, TERMS)
    assert forgotten(request) == [0]
    assert request is not None
    assert request.max_wait_ms == 21  # not longer than the pause
    state.answered(answer())
    assert asked(state.next(0.01, TERMS)) == {}
    state.answered(answer())
    assert asked(state.next(0.03, TERMS)) == {0: (1, 0, 0)}


def test_when_all_are_paused_there_is_nothing_to_ask_and_a_time_to_wait() -> None:
    state = following(Replica(0))
    state.next(0.0, TERMS)
    partition = state.answered(answer(partition_data(0, ErrorCode.KAFKA_STORAGE_ERROR)))
    assert partition is not None
    state.pause(partition[0][0], 10.0, 1.0, 0.5)
    assert state.next(10.0, TERMS) is None
    assert state.due_in(10.0) == pytest.approx(0.02)
    request = state.next(10.1, TERMS)
    assert asked(request) == {0: (1, 0, 0)}
    assert request is not None
    assert request.session_epoch == 0


def test_a_new_epoch_ends_the_pause() -> None:
    replica = Replica(0)
    state = following(replica)
    state.next(0.0, TERMS)
    partition = state.answered(answer(partition_data(0, ErrorCode.FENCED_LEADER_EPOCH)))
    assert partition is not None
    state.pause(partition[0][0], 0.0, 100.0, 0.5)
    replica.leader_epoch = LeaderEpoch(2)
    state.follow(replica, 0.0)
    assert asked(state.next(0.0, TERMS)) == {0: (2, 0, 0)}


def test_pauses_grow_up_to_the_longest_and_differ() -> None:
    assert pause_s(1, 1.0, 0.5) < pause_s(2, 1.0, 0.5) < pause_s(4, 1.0, 0.5)
    assert pause_s(50, 1.0, 0.5) == 1.0
    assert pause_s(50, 1.0, 0.0) < pause_s(50, 1.0, 0.9)


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_a_refused_session_is_begun_again_at_once_but_not_for_ever(code: ErrorCode) -> None:
    state = in_session(Replica(0), Replica(1))
    state.next(0.0, TERMS)
    assert state.answered(answer(session_id=0, error=code)) is None
    assert state.lost(code, 1.0, 0.5) == 0.0
    request = state.next(0.0, TERMS)
    assert asked(request).keys() == {0, 1}
    assert request is not None
    assert request.session_epoch == 0
    assert state.answered(answer(session_id=0, error=code)) is None
    assert state.lost(code, 1.0, 0.5) > 0.0


def test_after_no_answer_everything_is_said_again() -> None:
    state = in_session(Replica(0), Replica(1))
    state.next(0.0, TERMS)
    assert state.lost(ErrorCode.NETWORK_EXCEPTION, 1.0, 0.5) > 0.0
    request = state.next(0.0, TERMS)
    assert asked(request).keys() == {0, 1}
    assert request is not None
    assert (request.session_id, request.session_epoch) == (5, 0)  # closes the old one


def test_a_leader_without_sessions_gets_everything_each_time() -> None:
    state = following(Replica(0), Replica(1))
    for _ in range(3):
        assert asked(state.next(0.0, TERMS)).keys() == {0, 1}
        state.answered(answer(session_id=0))


def test_each_answer_calls_for_one_thing() -> None:
    assert fetch_result_action(partition_data(0)) is FetchResultAction.TAKE
    assert (
        fetch_result_action(partition_data(0).replace(diverging_epoch=EpochEndOffset(epoch=3, end_offset=9)))
        is FetchResultAction.TRUNCATE
    )
    assert (
        fetch_result_action(partition_data(0, ErrorCode.OFFSET_OUT_OF_RANGE)) is FetchResultAction.BEGIN_AGAIN
    )
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_ID):
        assert fetch_result_action(partition_data(0, code)) is FetchResultAction.PAUSE


def test_the_longer_nothing_happens_the_longer_it_waits_up_to_a_limit() -> None:
    replica = Replica(0)
    state = in_session(replica)
    waits = []
    for _ in range(8):
        request = state.next(0.0, TERMS)
        assert request is not None
        waits.append(request.max_wait_ms)
        state.answered(answer())
    assert waits == [500, 500, 500, 1000, 2000, 3000, 3000, 3000]
    state.next(0.0, TERMS)
    state.answered(answer(partition_data(0)))
    request = state.next(0.0, TERMS)
    assert request is not None
    assert request.max_wait_ms == 500


def test_a_partition_more_ends_the_long_waits() -> None:
    state = in_session(Replica(0))
    for _ in range(8):
        state.next(0.0, TERMS)
        state.answered(answer())
    state.follow(Replica(1), 0.0)
    request = state.next(0.0, TERMS)
    assert request is not None
    assert request.max_wait_ms == 500


KEY = (UUID(int=7), 0)


def idle(*replicas: Replica) -> FetchState:
    """The state after an answer that was applied, with the next request under way."""
    state = in_session(*replicas)
    state.next(0.0, TERMS)
    return state


def test_a_short_round_asks_what_a_general_one_asks() -> None:
    general, short = (idle(Replica(0), Replica(1)) for _ in range(2))
    for number in range(1, 4):
        general.answered(answer(partition_data(0)))
        followed = short.lone_answer(5, KEY)
        assert followed is not None
        short.lone_answered(followed)
        for state in (general, short):
            replica = next(iter(state.followed)).replica
            assert isinstance(replica, Replica)
            replica.durable_offset, replica.high_watermark = 10 * number, 10 * number - 1
        request, asked_shortly = general.next(0.0, TERMS), short.lone_next(followed)
        assert request is not None
        assert asked_shortly is not None
        session_id, epoch, position = asked_shortly
        assert (session_id, epoch) == (request.session_id, request.session_epoch)
        [named] = request.topics[0].partitions
        assert position == (
            named.current_leader_epoch,
            named.fetch_offset,
            named.last_fetched_epoch,
            named.log_start_offset,
            named.high_watermark,
        )
    for state in (general, short):
        state.answered(answer(partition_data(1)))
    assert general.next(0.0, TERMS) == short.next(0.0, TERMS)


def test_an_answer_of_another_session_or_partition_is_left_to_a_general_round() -> None:
    state = idle(Replica(0))
    assert state.lone_answer(6, KEY) is None
    assert state.lone_answer(5, (UUID(int=7), 1)) is None
    state.lost(ErrorCode.NETWORK_EXCEPTION, 1.0, 0.5)
    assert state.lone_answer(5, KEY) is None


def test_there_is_no_short_round_while_another_partition_must_be_named() -> None:
    first = Replica(0)
    state = idle(first)
    followed = state.lone_answer(5, KEY)
    assert followed is not None
    state.lone_answered(followed)
    first.durable_offset = 10
    state.follow(Replica(1), 0.0)
    assert state.lone_next(followed) is None
    assert asked(state.next(0.0, TERMS)) == {0: (1, 10, 0), 1: (1, 0, 0)}
    paused = idle(Replica(0), Replica(1))
    [_, other] = paused.followed
    paused.pause(other, 0.0, 1.0, 0.5)
    assert paused.lone_answer(5, KEY) is None


def test_a_short_round_acknowledges_nothing_that_is_not_durable_or_has_another_role() -> None:
    replica = Replica(0)
    state = idle(replica)
    followed = state.lone_answer(5, KEY)
    assert followed is not None
    state.lone_answered(followed)
    replica.durable_offset, replica.is_durable = 10, False
    assert state.lone_next(followed) is None
    replica.is_durable, replica.leader_epoch = True, LeaderEpoch(2)
    state.follow(replica, 0.0)
    assert state.lone_next(followed) is None
    assert state.lone_answer(5, KEY) is None
