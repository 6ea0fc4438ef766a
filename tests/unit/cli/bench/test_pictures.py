"""Pictures of rates and latencies."""

from __future__ import annotations

from odradek.cli.bench.pictures import WIDTH, duration_text, latency_bars, rate_line


def test_the_highest_rate_has_the_highest_bar_and_none_the_lowest() -> None:
    assert rate_line([0.0, 50.0, 100.0]) == "▁▅█"
    assert rate_line([7.0]) == "█"
    assert rate_line([0.0, 0.0]) == "▁▁"
    assert rate_line([]) == ""


def test_more_seconds_than_there_is_room_for_are_averaged() -> None:
    line = rate_line([1.0] * 4321 + [0.0] * 4321)
    assert line == "█" * (WIDTH // 2) + "▁" * (WIDTH // 2)


def test_a_bar_is_as_long_as_its_share_of_the_largest_and_the_smallest_is_seen() -> None:
    first, second, third = latency_bars([(0.001, 50), (0.002, 100), (0.004, 1)], width=4)
    assert first == "  ≤      1 ms  ██    33.1%"
    assert second == "  ≤      2 ms  ████  66.2%"
    assert third == "  ≤      4 ms  ▏      0.7%"
    assert latency_bars([]) == []


def test_durations_have_their_unit() -> None:
    assert [duration_text(seconds) for seconds in (0.000_25, 0.0125, 1.5)] == ["250 µs", "12.5 ms", "1.5 s"]
