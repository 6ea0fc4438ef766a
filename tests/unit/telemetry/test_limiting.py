"""The limit of lines: what passes, what is dropped, and that every dropped line is counted."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import odradek
from odradek.telemetry import events
from odradek.telemetry.limiting import Cause, LineLimiter

ONE = Cause("net", "connection_refused", "10.0.0.1")


def test_a_burst_passes_and_the_rest_is_dropped_until_time_goes_by() -> None:
    limiter = LineLimiter(burst=3, per_second=1.0)
    assert [limiter.admit(ONE, 0.0) for _ in range(6)] == [0, 0, 0, None, None, None]
    assert limiter.admit(ONE, 1.0) == 3, "as many were dropped"
    assert limiter.admit(ONE, 1.0) is None


def test_a_noisy_cause_leaves_the_others_theirs() -> None:
    limiter = LineLimiter(burst=1)
    assert limiter.admit(ONE, 0.0) == 0
    assert limiter.admit(ONE, 0.0) is None
    assert limiter.admit(ONE._replace(host="10.0.0.2"), 0.0) == 0
    assert limiter.admit(ONE._replace(event="frame_cut_short"), 0.0) == 0


def test_what_was_dropped_is_reported_when_the_cause_is_quiet_and_once() -> None:
    limiter = LineLimiter(burst=1, per_second=0.1, quiet_seconds=10.0)
    assert [limiter.admit(ONE, 100.0) for _ in range(5)] == [0, None, None, None, None]
    assert limiter.overdue(105.0) == []
    assert limiter.overdue(111.0) == [(ONE, 4)]
    assert limiter.overdue(120.0) == []
    assert len(limiter) == 0


def test_the_number_of_causes_is_bounded_however_many_hosts_there_are() -> None:
    limiter = LineLimiter(burst=2, causes_max=10)
    passed = [limiter.admit(ONE._replace(host=str(number)), 0.0) for number in range(1000)]
    assert len(limiter) <= 11
    assert sum(outcome is not None for outcome in passed) <= 10 + 2


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abcdefgh"), st.floats(-5.0, 30.0)), max_size=200)
)
def test_every_line_passes_or_is_counted(steps: list[tuple[int, str, float]]) -> None:
    limiter = LineLimiter(burst=4, per_second=0.5, causes_max=4)
    now, given_count, passed, reported_count = 1000.0, 0, 0, 0
    for count, host, pause in steps:
        now += pause
        reported_count += sum(dropped for _, dropped in limiter.overdue(now))
        for _ in range(count):
            outcome = limiter.admit(ONE._replace(host=host), now)
            given_count += 1
            passed += outcome is not None
            reported_count += outcome or 0
    reported_count += sum(dropped for _, dropped in limiter.overdue(now + 1e6))
    assert passed + reported_count == given_count


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    logger = logging.getLogger("odradek")
    before = (logger.handlers[:], logger.level, logger.propagate)
    stream = io.StringIO()
    events.configure(stream=stream)
    yield stream
    logger.handlers[:], logger.level, logger.propagate = before
    logging.getLogger("asyncio").handlers.clear()


def test_events_that_peers_cause_are_limited_by_their_address(out: io.StringIO) -> None:
    log = events.caused_by_peers("net")
    for number in range(10_000):
        log.warning("connection_refused", peer=f"10.0.0.1:{number}", reason="full")
    log.warning("connection_refused", peer="10.0.0.2:1", reason="full")
    lines = out.getvalue().splitlines()
    assert len(lines) < 100
    assert "peer=10.0.0.2:1" in lines[-1]


def test_the_event_loops_own_complaints_are_limited_too(out: io.StringIO) -> None:
    for _ in range(1000):
        logging.getLogger("asyncio").error("socket.accept() out of system resource\nsocket: <socket>")
    assert len(out.getvalue().splitlines()) < 200


@pytest.mark.parametrize("room", ["net", "groups", "transactions", "broker/handlers"])
def test_rooms_that_strangers_reach_log_within_the_limit(room: str) -> None:
    paths = sorted((Path(odradek.__file__).parent / room).rglob("*.py"))
    assert len(paths) > 3
    assert [path.name for path in paths if "events.get(" in path.read_text(encoding="utf-8")] == []


def test_other_events_are_never_dropped(out: io.StringIO) -> None:
    log = events.get("cluster")
    for number in range(1000):
        log.info("topic_created", topic=f"t{number}")
    assert len(out.getvalue().splitlines()) == 1000
