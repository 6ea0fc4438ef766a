"""How far a stream may read: limits, new and vanished partitions, shrunken logs, and how often it asks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

import pytest
from tests.unit.spark.logs import FIRST_ID, Logs

from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.reading.offsets import StreamOffset, ranges_between
from odradek.spark.reading.progress import StreamProgress

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Hands:
    """A clock that moves only when someone pauses or the test says so."""

    now: float = 100.0
    pauses: list[float] = field(default_factory=list)
    after_pause: Callable[[float], None] = lambda now: None

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        self.after_pause(self.now)


def stream(logs: Logs, hands: Hands | None = None, **options: str) -> StreamProgress:
    hands = hands or Hands()
    given = {"kafka.bootstrap.servers": "h:1", "partitionDiscoveryIntervalMs": "0", **options}
    if not {"subscribe", "assign", "subscribePattern"} & set(given):
        given["subscribe"] = "t"
    return StreamProgress(read_options(given, Use.STREAM_READ), logs, hands, hands.pause)


def at(**offsets: int) -> StreamOffset:
    return StreamOffset(
        next_offsets={TopicPartition("t", int(name[1:])): offset for name, offset in offsets.items()},
        topic_ids={"t": FIRST_ID} if offsets else {},
    )


def test_a_query_starts_at_the_end_by_default_and_keeps_that_answer() -> None:
    logs = Logs({A: (0, 5)})
    progress = stream(logs)
    assert progress.initial() == at(p0=5)
    logs.spans[A] = (0, 9)
    assert progress.initial() == at(p0=5)


def test_the_first_batch_journals_where_it_began() -> None:
    logs = Logs({A: (0, 5)})
    progress = stream(logs)
    start = progress.initial()
    logs.spans[A] = (0, 9)
    end = progress.latest(start, None)
    logs.spans[A] = (0, 20)
    after_restart = stream(logs).initial()
    assert [(span.start, span.end) for span in ranges_between(after_restart, end)] == [(5, 9)]


def test_later_batches_are_plain() -> None:
    logs = Logs({A: (0, 5)})
    progress = stream(logs, startingOffsets="earliest")
    first = progress.latest(progress.initial(), 3)
    assert progress.latest(first, 3) == at(p0=5)


def test_nothing_new_is_the_start_itself() -> None:
    progress = stream(Logs({A: (0, 5)}))
    first = progress.latest(progress.initial(), None)
    assert progress.latest(first, None) is first


def test_the_first_batch_says_where_it_began_even_when_it_is_empty() -> None:
    progress = stream(Logs({A: (0, 5)}))
    first = progress.latest(progress.initial(), None)
    assert (first.next_offsets, first.beginnings) == ({A: 5}, {A: 5})


def test_a_start_by_time_is_the_first_record_that_new() -> None:
    assert stream(Logs({A: (0, 9)}), startingTimestamp="4").initial() == at(p0=4)


def test_a_time_after_the_last_record_is_refused_or_means_the_end() -> None:
    logs = Logs({A: (0, 9)})
    with pytest.raises(ConfigError, match="t-0 holds no record at or after 70 ms"):
        stream(logs, startingTimestamp="70").initial()
    given = {"startingTimestamp": "70", "startingOffsetsByTimestampStrategy": "latest"}
    assert stream(logs, **given).initial() == at(p0=9)


def test_a_query_starts_where_a_group_stands_and_reads_what_the_group_does_not_know_from_its_beginning() -> (
    None
):
    logs = Logs({A: (0, 9), B: (2, 9)}, groups={"g": {A: 4, TopicPartition("else", 0): 1}})
    assert stream(logs, startingOffsets="group:g").initial() == at(p0=4, p1=2)


def test_a_group_without_offsets_is_refused() -> None:
    with pytest.raises(ConfigError, match="group 'g' has committed no offset of what is read"):
        stream(Logs({A: (0, 9)}), startingOffsets="group:g").initial()


def test_a_group_that_stands_before_the_log_is_a_loss() -> None:
    logs = Logs({A: (6, 9)}, groups={"g": {A: 4}})
    with pytest.raises(KafkaError, match="t-0 now begins at offset 6, after offset 4"):
        stream(logs, startingOffsets="group:g").initial()
    progress = stream(logs, startingOffsets="group:g", failOnDataLoss="false")
    assert progress.initial() == at(p0=6)


def test_a_query_resumes_from_its_sinks_decision_or_starts_as_its_options_say() -> None:
    options = {"resume": "true", "sinkId": "s", "startingOffsets": "earliest"}
    logs = Logs({A: (1, 9)}, groups={"__odradek_sink.s": {A: 4}})
    assert stream(logs, **options).initial() == at(p0=4)
    assert stream(Logs({A: (1, 9)}), **options).initial() == at(p0=1)


def test_a_topic_that_does_not_exist_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="there is no topic nope"):
        stream(Logs({A: (0, 1)}), subscribe="t,nope").initial()
    with pytest.raises(ConfigError, match="there is no partition t-7"):
        stream(Logs({A: (0, 1)}), assign='{"t": [0, 7]}').initial()


def test_a_pattern_may_match_nothing_yet() -> None:
    logs = Logs({})
    progress = stream(logs, subscribePattern="t.*", startingOffsets="earliest")
    start = progress.initial()
    assert start == at()
    logs.spans[TopicPartition("t", 0)] = (0, 3)
    logs.spans[TopicPartition("other-t", 0)] = (0, 3)
    assert progress.latest(start, None).next_offsets == {A: 3}


def test_a_partition_added_while_running_is_read_from_its_beginning() -> None:
    logs = Logs({A: (0, 5)})
    progress = stream(logs)
    start = progress.initial()
    logs.spans[B] = (0, 2)
    end = progress.latest(start, None)
    assert end.next_offsets == {A: 5, B: 2}
    assert end.beginnings[B] == 0


def test_a_new_partition_without_records_makes_no_batch() -> None:
    logs = Logs({A: (0, 5)})
    progress = stream(logs)
    start = progress.latest(progress.initial(), None)
    logs.spans[B] = (0, 0)
    assert progress.latest(start, None) is start


def test_a_new_partition_that_lost_records_fails_or_begins_where_it_can() -> None:
    logs = Logs({A: (0, 5), B: (7, 9)})
    with pytest.raises(KafkaError, match="t-1 is new to this query and already begins at offset 7"):
        stream(logs).latest(at(p0=5), None)
    end = stream(logs, failOnDataLoss="false").latest(at(p0=5), None)
    assert [(span.start, span.end) for span in ranges_between(at(p0=5), end)] == [(7, 9)]


@pytest.mark.parametrize("spans", [{A: (0, 3)}, {B: (0, 3)}])
def test_a_log_that_shrank_or_vanished_fails_the_query(spans: dict[TopicPartition, tuple[int, int]]) -> None:
    with pytest.raises(KafkaError, match="failOnDataLoss=false") as caught:
        stream(Logs(spans)).latest(at(p0=8), None)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_it_goes_on_from_the_new_end_when_asked_to_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    logs = Logs({A: (0, 3)})
    progress = stream(logs, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        end = progress.latest(at(p0=8), None)
        progress.latest(at(p0=8), None)
    assert end == at(p0=3)
    assert [record.getMessage() for record in caplog.records] == [
        "records were lost before they were read: t-0 ends at offset 3, before offset 8;"
        " going on because failOnDataLoss is false"
    ]


def test_an_end_that_only_lags_behind_is_asked_for_again() -> None:
    logs, hands = Logs({A: (0, 9)}, lag_looks={A: [2, 2]}), Hands()
    assert stream(logs, hands).latest(at(p0=5), None) == at(p0=9)
    assert hands.pauses == [0.01, 0.01]


def test_explicit_offsets_outside_the_log_are_a_loss() -> None:
    logs = Logs({A: (4, 9)})
    given = {"startingOffsets": '{"t": {"0": 2}}'}
    with pytest.raises(KafkaError, match="t-0 now begins at offset 4, after offset 2"):
        stream(logs, **given).initial()
    assert stream(logs, failOnDataLoss="false", **given).initial() == at(p0=4)


def test_a_stream_at_rest_asks_the_brokers_once_per_interval() -> None:
    logs, hands = Logs({A: (0, 5)}), Hands()
    progress = stream(logs, hands, offsetPollIntervalMs="50")
    start = progress.initial()
    hands.now += 1.0
    before, started = logs.look_count, hands.now
    for _ in range(20):
        progress.latest(start, None)
    assert logs.look_count - before == 20
    assert hands.now - started == pytest.approx(19 * 0.05)


def busy_stream(logs: Logs, hands: Hands) -> tuple[StreamProgress, StreamOffset]:
    """A stream that has read all there is, a moment ago; its next look is due after 50 ms."""
    progress = stream(logs, hands, offsetPollIntervalMs="50", startingOffsets="earliest")
    return progress, progress.latest(progress.initial(), None)


def test_a_record_soon_after_another_one_is_found_before_the_interval_is_over() -> None:
    logs, hands = Logs({A: (0, 5), B: (0, 5)}), Hands()
    progress, start = busy_stream(logs, hands)
    sent_at = hands.now + 0.02

    def send_when_due(now: float) -> None:
        if now >= sent_at:
            logs.spans[B] = (0, 6)

    hands.after_pause = send_when_due
    before = logs.look_count
    assert progress.latest(start, None).next_offsets == {A: 5, B: 6}
    assert sent_at <= hands.now < sent_at + 0.01
    assert logs.look_count - before == len(hands.pauses)  # the ends that were seen are not asked for again


def test_a_stream_asks_the_less_often_the_longer_nothing_has_come() -> None:
    logs, hands = Logs({A: (0, 5)}), Hands()
    progress, start = busy_stream(logs, hands)
    look_counts = []
    for _ in range(6):
        before = logs.look_count
        assert progress.latest(start, None) is start
        look_counts.append(logs.look_count - before)
    assert look_counts == sorted(look_counts, reverse=True)
    assert look_counts[0] > 5
    assert look_counts[-1] == 1


def test_a_topic_that_was_made_again_with_the_same_end_is_found_at_the_interval() -> None:
    logs, hands = Logs({A: (0, 5)}), Hands()
    progress, start = busy_stream(logs, hands)
    logs.ids["t"] = uuid4()
    began = hands.now
    with pytest.raises(KafkaError, match="topic 't' was deleted and made again"):
        progress.latest(start, None)
    assert hands.now - began == pytest.approx(0.05)


def test_a_backlog_is_read_without_asking_or_waiting() -> None:
    logs, hands = Logs({A: (0, 50)}), Hands()
    progress = stream(logs, hands, startingOffsets="earliest")
    offset = progress.initial()
    before = logs.look_count
    for _ in range(5):
        offset = progress.latest(offset, 10)
    assert offset.next_offsets == {A: 50}
    assert logs.look_count - before == 1
    assert hands.pauses == []


def test_available_now_ends_at_what_was_there_when_it_began() -> None:
    logs = Logs({A: (0, 5)})
    progress = stream(logs, startingOffsets="earliest")
    progress.prepare_available_now()
    logs.spans[A] = (0, 50)
    end = progress.latest(progress.initial(), None)
    assert end.next_offsets == {A: 5}
    assert progress.latest(end, None) is end


def test_a_small_backlog_waits_for_more_but_not_for_ever() -> None:
    logs, hands = Logs({A: (0, 5)}), Hands()
    progress = stream(
        logs, hands, minOffsetsPerTrigger="10", maxTriggerDelay="60s", startingOffsets="earliest"
    )
    start = progress.latest(progress.initial(), None)
    assert progress.latest(start, None) is start
    assert progress.latest(start, None, everything=True).next_offsets == {A: 5}
    progress = stream(
        logs, hands, minOffsetsPerTrigger="10", maxTriggerDelay="60s", startingOffsets="earliest"
    )
    start = progress.initial()
    hands.now += 61
    assert progress.latest(start, None).next_offsets == {A: 5}


def test_the_latest_known_offset_is_given_without_asking() -> None:
    logs = Logs({A: (0, 5)})
    progress = stream(logs)
    assert progress.known_latest() is None
    progress.latest(progress.initial(), None)
    before = logs.look_count
    assert progress.known_latest() == at(p0=5)
    assert logs.look_count == before
