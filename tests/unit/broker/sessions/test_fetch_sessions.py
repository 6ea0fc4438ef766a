"""Fetch sessions as KIP-227 has them, decided without a loop or a clock."""

import random

import pytest

from odradek.broker.sessions.fetch_sessions import (
    FetchSessions,
    PartitionKey,
    RequestedPartition,
    SentPartition,
    SessionFetchPlan,
    named,
)
from odradek.model.errors import ErrorCode, KafkaError


def make(slots: int = 2) -> FetchSessions:
    return FetchSessions(slots=slots, eviction_seconds=120, chance=random.Random(7).random)


def want(partition: int, offset: int = 0) -> RequestedPartition:
    return RequestedPartition(key=named("t", partition), fetch_offset=offset, max_bytes=1000)


def plan(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    wanted: list[RequestedPartition] | None = None,
    forgotten: list[PartitionKey] | None = None,
    *,
    now: float = 0.0,
    owner: str = "me",
    uses_topic_ids: bool = False,
    is_follower: bool = False,
) -> SessionFetchPlan:
    return sessions.plan(
        session_id=session_id,
        epoch=epoch,
        wanted=wanted or [],
        forgotten=forgotten or [],
        uses_topic_ids=uses_topic_ids,
        owner=owner,
        now=now,
        is_follower=is_follower,
    )


def partition_data(
    partition: int, *, high_watermark: int = 0, has_records: bool = False, has_news: bool = False
) -> SentPartition:
    return SentPartition(
        key=named("t", partition),
        high_watermark=high_watermark,
        log_start_offset=0,
        has_records=has_records,
        has_news=has_news,
    )


def test_epoch_minus_one_fetches_in_full_without_a_session() -> None:
    sessions = make()
    assert plan(sessions, 0, -1, [want(0)]).session_id == 0
    assert len(sessions) == 0


def test_epoch_zero_opens_a_session_whose_partitions_need_not_be_named_again() -> None:
    sessions = make()
    first = plan(sessions, 0, 0, [want(0), want(1)])
    assert first.session_id != 0
    again = plan(sessions, first.session_id, 1)
    assert again.incremental
    assert [wanted_partition.key.partition for wanted_partition in again.wanted] == [0, 1]


def test_an_incremental_fetch_changes_adds_and_forgets_partitions() -> None:
    sessions = make()
    session_id = plan(sessions, 0, 0, [want(0), want(1)]).session_id
    changed = plan(sessions, session_id, 1, [want(1, offset=9), want(2)], [named("t", 0)])
    assert [
        (wanted_partition.key.partition, wanted_partition.fetch_offset) for wanted_partition in changed.wanted
    ] == [(1, 9), (2, 0)]


@pytest.mark.parametrize("epoch", [2, 7])
def test_an_unexpected_epoch_is_refused_and_harms_nothing(epoch: int) -> None:
    sessions = make()
    session_id = plan(sessions, 0, 0, [want(0)]).session_id
    with pytest.raises(KafkaError) as refused:
        plan(sessions, session_id, epoch)
    assert refused.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert plan(sessions, session_id, 1).session_id == session_id


def test_an_unknown_session_and_someone_elses_are_not_found() -> None:
    sessions = make()
    session_id = plan(sessions, 0, 0, [want(0)]).session_id
    for other, owner in ((session_id + 1, "me"), (session_id, "somebody")):
        with pytest.raises(KafkaError) as refused:
            plan(sessions, other, 1, owner=owner)
        assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_someone_else_cannot_close_a_session() -> None:
    sessions = make()
    session_id = plan(sessions, 0, 0, [want(0)]).session_id
    plan(sessions, session_id, -1, [want(0)], owner="somebody")
    assert plan(sessions, session_id, 1).session_id == session_id


def test_a_session_keeps_to_one_kind_of_topic_names() -> None:
    sessions = make()
    session_id = plan(sessions, 0, 0, [want(0)]).session_id
    with pytest.raises(KafkaError) as refused:
        plan(sessions, session_id, 1, uses_topic_ids=True)
    assert refused.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_cache_gives_a_slot_only_for_a_session_long_unused() -> None:
    sessions = make(slots=1)
    first = plan(sessions, 0, 0, [want(0)], now=0).session_id
    assert plan(sessions, 0, 0, [want(0)], now=100).session_id == 0
    assert plan(sessions, first, 1, now=100).session_id == first
    assert plan(sessions, 0, 0, [want(0)], now=150).session_id == 0
    newcomer = plan(sessions, 0, 0, [want(0)], now=221).session_id
    assert newcomer not in (0, first)
    assert len(sessions) == 1


def test_epochs_wrap_to_one_and_never_to_zero() -> None:
    sessions = make()
    first = plan(sessions, 0, 0, [want(0)])
    assert first.session is not None
    first.session.epoch = 2**31 - 1
    plan(sessions, first.session_id, 2**31 - 1)
    assert first.session.epoch == 1


def test_a_session_whose_last_partition_is_forgotten_ends() -> None:
    sessions = make()
    session_id = plan(sessions, 0, 0, [want(0)]).session_id
    assert plan(sessions, session_id, 1, [], [named("t", 0)]).session_id == 0
    assert len(sessions) == 0


def test_an_incremental_response_mentions_only_what_changed() -> None:
    sessions = make()
    session = plan(sessions, 0, 0, [want(0)]).session
    assert session is not None
    assert session.changed(partition_data(0, high_watermark=5))
    assert not session.changed(partition_data(0, high_watermark=5))
    assert session.changed(partition_data(0, high_watermark=6))
    assert session.changed(partition_data(0, high_watermark=6, has_records=True))
    assert session.changed(partition_data(0, high_watermark=-1, has_news=True))
    assert session.changed(partition_data(0, high_watermark=6)), "the end of the trouble is news too"


def test_a_response_leaves_out_the_marks_that_the_follower_named_itself() -> None:
    sessions = make()
    new = RequestedPartition(
        key=named("t", 0), fetch_offset=0, max_bytes=1000, log_start_offset=0, high_watermark=0
    )
    session = plan(sessions, 0, 0, [new], is_follower=True).session
    assert session is not None
    assert not session.is_news(new.key, 0, 0)
    assert not session.changed(partition_data(0, high_watermark=0))
    assert session.is_news(new.key, 0, 1), "the log begins elsewhere"
    assert session.is_news(new.key, 1, 0)
    assert session.changed(partition_data(0, high_watermark=1))
    assert session.changed(partition_data(0, high_watermark=-1, has_news=True))
    assert session.is_news(new.key, 0, 0), "the end of the trouble is news to a follower, too"
    assert session.changed(partition_data(0, high_watermark=0))
    assert not session.is_news(new.key, 0, 0)


def test_what_is_forgotten_and_wanted_in_one_request_is_reported_again() -> None:
    sessions = make()
    session = plan(sessions, 0, 0, [want(0), want(1)]).session
    assert session is not None
    for number in (0, 1):
        assert session.changed(partition_data(number, high_watermark=7))
    again = plan(sessions, session.session_id, 1, [want(0), want(1)], [named("t", 0)])
    assert again.session is session
    assert [session.changed(partition_data(number, high_watermark=7)) for number in (0, 1)] == [True, False]


def test_a_partition_that_was_served_goes_to_the_back() -> None:
    sessions = make()
    first = plan(sessions, 0, 0, [want(0), want(1), want(2)])
    assert first.session is not None
    first.session.changed(partition_data(0, has_records=True))
    again = plan(sessions, first.session_id, 1)
    assert [wanted_partition.key.partition for wanted_partition in again.wanted] == [1, 2, 0]


def test_a_follower_takes_the_slot_of_a_consumer_and_none_takes_its_own() -> None:
    sessions = make(slots=1)
    plan(sessions, 0, 0, [want(0)], now=0)
    follower = plan(sessions, 0, 0, [want(0)], now=1, owner="broker 2", is_follower=True).session_id
    assert follower != 0
    assert plan(sessions, 0, 0, [want(0)], now=2).session_id == 0
    assert plan(sessions, 0, 0, [want(0)], now=2, owner="broker 3", is_follower=True).session_id == 0
    assert plan(sessions, follower, 1, now=3, owner="broker 2").session_id == follower


def test_a_session_that_a_follower_left_behind_is_forgotten_when_one_begins_another() -> None:
    sessions = make(slots=9)
    left = plan(sessions, 0, 0, [want(0)], now=0, owner="broker 2", is_follower=True).session
    assert left is not None
    stopped: list[str] = []
    left.rest(named("t", 0), lambda: stopped.append("stopped"))
    plan(sessions, 0, 0, [want(0)], now=119, owner="broker 2", is_follower=True)
    assert len(sessions) == 2
    plan(sessions, 0, 0, [want(0)], now=121, owner="broker 2", is_follower=True)
    assert len(sessions) == 2
    assert stopped == ["stopped"]


def test_what_rests_is_not_looked_at_until_it_is_woken_or_named() -> None:
    sessions = make()
    first = plan(sessions, 0, 0, [want(0), want(1), want(2)])
    assert first.session is not None
    stopped: list[int] = []
    for partition in (0, 1, 2):
        first.session.rest(named("t", partition), lambda partition=partition: stopped.append(partition))  # type: ignore[misc]
    assert plan(sessions, first.session_id, 1).wanted == []
    first.session.wake(named("t", 2))
    again = plan(sessions, first.session_id, 2, [want(1, offset=7)])
    assert [
        (wanted_partition.key.partition, wanted_partition.fetch_offset) for wanted_partition in again.wanted
    ] == [(2, 0), (1, 7)]
    assert stopped == [2, 1]
    plan(sessions, first.session_id, 3, [], [named("t", 0)])
    assert stopped == [2, 1, 0]


def test_a_session_that_ends_watches_nothing_any_more() -> None:
    sessions = make()
    session = plan(sessions, 0, 0, [want(0)]).session
    assert session is not None
    stopped: list[str] = []
    session.rest(named("t", 0), lambda: stopped.append("stopped"))
    plan(sessions, session.session_id, -1)
    assert stopped == ["stopped"]


def test_the_sessions_of_consumers_together_hold_so_many_partitions_and_followers_any_number() -> None:
    chance = random.Random(7).random
    sessions = FetchSessions(slots=9, eviction_seconds=120, chance=chance, partitions_max=5)
    first = plan(sessions, 0, 0, [want(number) for number in range(3)]).session_id
    assert first != 0
    without = plan(sessions, 0, 0, [want(number) for number in range(3)])
    assert (without.session_id, len(without.wanted)) == (0, 3)
    with pytest.raises(KafkaError) as refused:
        plan(sessions, first, 1, [want(number) for number in range(3, 6)])
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert plan(sessions, 0, 0, [want(number) for number in range(9)], is_follower=True).session_id != 0
    plan(sessions, first, -1)
    assert plan(sessions, 0, 0, [want(number) for number in range(5)]).session_id != 0


def test_a_consumers_session_that_is_not_used_ends_though_no_slot_is_wanted() -> None:
    sessions = make(slots=9)
    plan(sessions, 0, 0, [want(0)], now=0)
    follower = plan(sessions, 0, 0, [want(0)], now=0, owner="broker 2", is_follower=True).session_id
    used = plan(sessions, 0, 0, [want(0)], now=1).session_id
    plan(sessions, used, 1, now=121)
    assert set(sessions.by_id()) == {follower, used}
