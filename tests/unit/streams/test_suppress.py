"""Updates of a table that are held back, compared with a model of Kafka Streams' buffer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import ConfigError
from odradek.streams import Streams, time_limit
from odradek.streams.plan.windows import TimeLimit
from odradek.streams.processors.ports import InputRow
from odradek.streams.processors.suppress import SuppressBufferFullError, SuppressProcessor
from odradek.streams.processors.task import MemoryStore, pass_time, run_batch

Said = tuple[str, Any, Any, int]


def row(number: int, key: str | None, value: int | None, time: int) -> InputRow:
    payload = {"value": None if value is None else {"v": value}, "old": {"v": number}}
    return InputRow(0, None if key is None else {"k": key}, payload, time, None, [time, 0, 0, number])


def said(limit: TimeLimit, rows: list[InputRow], cuts: tuple[int, ...] = ()) -> list[Said]:
    processor, store = SuppressProcessor(limit), MemoryStore()
    made = []
    for begin, end in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        for place in range(begin, end):  # in the order of arrival, whatever the time
            for _, update in run_batch(processor, store, rows[place : place + 1]):
                assert update.key is not None
                new, old = update.values
                made.append((update.key["k"], new and new["v"], old and old["v"], update.timestamp))
    return made


def model(wait: int, records_max: int | None, rows: list[InputRow]) -> list[Said]:
    """The buffer of Kafka: by key, and by the time of the first update and the key."""
    held: dict[str, tuple[int, Any, Any, int]] = {}
    stream_time, made = -1, []
    for record in rows:
        stream_time = max(stream_time, record.timestamp)
        if record.key is not None and record.payload is not None:
            key, new, old = record.key["k"], record.payload["value"], record.payload["old"]
            first, _, oldest, _ = held.get(key, (record.timestamp, None, old, 0))
            held[key] = (first, new, oldest, record.timestamp)
        while held:
            key, (first, new, old, time) = min(held.items(), key=lambda entry: (entry[1][0], entry[0]))
            if first > stream_time - wait and (records_max is None or len(held) <= records_max):
                break
            del held[key]
            made.append((key, new and new["v"], old and old["v"], time))
    return made


updates = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.none() | st.integers(0, 9), st.integers(0, 60)),
    max_size=14,
)


@settings(max_examples=200, deadline=None)
@given(updates, st.integers(0, 30), st.none() | st.integers(0, 3))
def test_updates_go_on_as_from_the_buffer_of_kafka_streams(
    given_updates: list[tuple[str | None, int | None, int]], wait: int, records_max: int | None
) -> None:
    rows = [row(number, *update) for number, update in enumerate(given_updates)]
    limit = time_limit(wait, max_records=records_max)
    made, wanted = said(limit, rows), model(wait, records_max, rows)
    assert sorted(made, key=repr) == sorted(wanted, key=repr)
    for key in ("a", "b", "c"):
        assert [update for update in made if update[0] == key] == [
            update for update in wanted if update[0] == key
        ]


def test_time_that_passes_releases_what_waited_long_enough() -> None:
    processor, store = SuppressProcessor(time_limit(10)), MemoryStore()
    assert list(run_batch(processor, store, [row(0, "a", 1, 5)])) == []
    assert list(pass_time(processor, store, 14, [1, 0, 0, 1])) == []
    ((_, update),) = pass_time(processor, store, 15, [2, 0, 0, 2])
    assert update.values == ({"v": 1}, {"v": 0})


def test_bytes_are_bounded_and_what_is_released_no_longer_counts() -> None:
    rows = [row(number, f"key {number:04}", 1, number) for number in range(50)]
    one_update = len(said(time_limit("1 hour", max_bytes=200), rows))
    assert 45 <= one_update <= 49
    assert len(said(time_limit("1 hour", max_bytes=1_000_000), rows)) == 0


def test_a_full_buffer_ends_the_query_where_that_is_asked_for() -> None:
    rows = [row(number, str(number), 1, number) for number in range(3)]
    with pytest.raises(SuppressBufferFullError, match=r"holds back 3 updates .* max_records=2"):
        said(time_limit("1 hour", max_records=2, when_full="fail"), rows)


@pytest.mark.parametrize(
    "wrong", [{"max_records": -1}, {"max_bytes": True}, {"when_full": "stop"}, {"max_records": 1.5}]
)
def test_limits_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"max_records is|max_bytes is|when_full is"):
        time_limit("1 hour", **wrong)
    table = Streams("held").table("users", key="STRING", value="n INT")
    with pytest.raises(ConfigError, match="until= is time_limit"):
        table.suppress(until="5 minutes")  # type: ignore[arg-type]
