"""What the log says when the event loop was held."""

import logging

import pytest

from odradek.broker.loop_monitor import LoopStallLog
from odradek.runtime.real_loop_watch import LoopStall


class Clock:
    seconds = 0.0

    def now(self) -> float:
        return self.seconds


def listen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the package logs reaches `caplog` once, whatever other tests did to its logger."""
    monkeypatch.setattr(logging.getLogger("odradek"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("odradek"), "propagate", True)


def held(**changes: object) -> LoopStall:
    values = {"seconds": 0.25, "cpu_seconds": 0.2, "stack": ("outer (a.py:1)", "inner (b.py:2)")} | changes
    return LoopStall(**values)  # type: ignore[arg-type]


def test_one_event_says_how_long_and_where_and_the_next_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen(monkeypatch)
    clock = Clock()
    report = LoopStallLog(clock.now)
    for clock.seconds in (0.0, 1.0, 2.0, 20.0):
        report(held())
    values = [record.odradek_values for record in caplog.records]  # type: ignore[attr-defined]
    assert [entry["unreported_count"] for entry in values] == [0, 2]
    assert (values[0]["held_ms"], values[0]["cpu_ms"]) == (250, 200)
    assert values[0]["stack"] == "outer (a.py:1) > inner (b.py:2)"


def test_each_event_has_the_totals_of_all_reported_or_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen(monkeypatch)
    clock = Clock()
    report = LoopStallLog(clock.now)
    for clock.seconds, seconds in ((0.0, 0.25), (1.0, 0.5), (20.0, 0.125)):
        report(held(seconds=seconds))
    values = [record.odradek_values for record in caplog.records]  # type: ignore[attr-defined]
    assert [(entry["count"], entry["total_ms"], entry["longest_ms"]) for entry in values] == [
        (1, 250, 250),
        (3, 875, 500),
    ]


def test_one_that_goes_on_is_reported_at_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen(monkeypatch)
    report = LoopStallLog(Clock().now)
    report(held())
    report(held(seconds=6.0, cpu_seconds=None, is_over=False))
    assert len(caplog.records) == 2


def test_a_machine_without_a_free_core_is_reported_without_a_stack_and_ever_less_often(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen(monkeypatch)
    clock = Clock()
    report = LoopStallLog(clock.now)
    for second in range(3600):
        clock.seconds = float(second)
        report(held(seconds=0.4, cpu_seconds=0.001, core_wait_seconds=0.35))
    events = [record.odradek_values for record in caplog.records]  # type: ignore[attr-defined]
    assert len(events) <= 12
    assert all("stack" not in entry for entry in events)
    assert sum(entry["unreported_count"] for entry in events) + len(events) == events[-1]["count"]
    assert events[-1]["count"] > 3000


def test_holds_that_go_on_are_reported_ever_less_often_and_at_once_after_a_quiet_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen(monkeypatch)
    clock = Clock()
    report = LoopStallLog(clock.now)
    for second in range(1000):
        clock.seconds = float(second)
        report(held(core_wait_seconds=0.0))
    assert len(caplog.records) <= 8
    caplog.clear()
    for clock.seconds in (5000.0, 5010.0):
        report(held())
    assert len(caplog.records) == 2


def test_a_failed_look_is_logged_once_and_then_seldom(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen(monkeypatch)
    clock = Clock()
    report = LoopStallLog(clock.now)
    for clock.seconds in (0.0, 1.0, 2.0):
        report.check_failed(AttributeError("gone"))
    (entry,) = [record.odradek_values for record in caplog.records]  # type: ignore[attr-defined]
    assert entry["error"] == "AttributeError: gone"
