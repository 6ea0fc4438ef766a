"""The clock of spans, and the limit of how many there are."""

from odradek.telemetry.spans import RateLimit, SpanClock


class Clocks:
    def __init__(self) -> None:
        self.seconds = 100.0
        self.ahead_s = 1_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return int((self.seconds + self.ahead_s) * 1_000)


def test_a_time_between_two_milliseconds_is_not_cut_off() -> None:
    clocks = Clocks()
    clock = SpanClock(clocks.wall_ms, clocks.monotonic)
    first = clock.now_ns()
    clocks.seconds += 0.000_25
    assert 249_000 <= clock.now_ns() - first <= 251_000


def test_a_time_of_before_is_as_long_ago_as_the_monotonic_clock_says() -> None:
    clocks = Clocks()
    clock = SpanClock(clocks.wall_ms, clocks.monotonic)
    began = clocks.seconds
    clocks.seconds += 1.5
    assert clock.now_ns() - clock.at_ns(began) == 1_500_000_000


def test_a_wall_clock_that_is_set_back_is_followed() -> None:
    clocks = Clocks()
    clock = SpanClock(clocks.wall_ms, clocks.monotonic)
    clock.now_ns()
    clocks.ahead_s -= 60
    assert abs(clock.now_ns() - clocks.wall_ms() * 1_000_000) < 1_000_000


def test_uses_of_one_second_can_be_saved_and_no_more() -> None:
    clocks = Clocks()
    limit = RateLimit(3, clocks.monotonic)
    assert [limit.allow() for _ in range(4)] == [True, True, True, False]
    clocks.seconds += 100
    assert [limit.allow() for _ in range(4)] == [True, True, True, False]
    clocks.seconds += 1 / 3 + 0.001
    assert [limit.allow() for _ in range(2)] == [True, False]


def test_a_use_may_cost_more_and_is_refused_as_a_whole() -> None:
    clocks = Clocks()
    limit = RateLimit(10, clocks.monotonic)
    assert [limit.allow(6.0), limit.allow(6.0), limit.allow(4.0), limit.allow(0.5)] == [
        True,
        False,
        True,
        False,
    ]


def test_a_limit_of_nothing_allows_nothing() -> None:
    clocks = Clocks()
    limit = RateLimit(0, clocks.monotonic)
    clocks.seconds += 10
    assert not limit.allow()
