"""Intervals of paired rounds: they see a difference of 1 % where the pairs allow it, and say so where they do not."""

from __future__ import annotations

import os
import random
import statistics
import threading

from benchmarks.watching.paired_rounds import Interval, Pair, Round, cpu_s, median_interval, report

NOISE = 0.015


def ratios(cost: float, count: int, seed: int, noise: float = NOISE) -> list[float]:
    chance = random.Random(seed)
    return [(1 + cost) * chance.lognormvariate(0.0, noise) for _ in range(count)]


def test_an_interval_holds_its_median_and_narrows_with_pairs() -> None:
    few, many = median_interval(ratios(0.01, 8, 5)), median_interval(ratios(0.01, 200, 5))
    assert few.low <= few.median <= few.high
    assert many.high - many.low < (few.high - few.low) / 2
    assert many.sees


def test_one_percent_is_distinguished_from_nothing_with_enough_pairs() -> None:
    planted, nothing = median_interval(ratios(0.01, 150, 3)), median_interval(ratios(0.0, 150, 3))
    assert planted.low > 1.0
    assert nothing.low < 1.0 < nothing.high


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    held = [
        interval.low <= 1.01 <= interval.high
        for interval in (median_interval(ratios(0.01, 20, seed)) for seed in range(30))
    ]
    assert 0.85 <= statistics.mean(held) <= 1.0


def test_a_report_says_when_a_run_cannot_see_one_percent() -> None:
    quiet = [
        Pair(Round(3.0 * ratio, 2.0 * ratio), Round(3.0, 2.0)) for ratio in ratios(0.004, 24, 1, NOISE / 2)
    ]
    assert report(quiet, 1_000_000).count(": 1 % would be seen") == 2
    busy = [Pair(Round(3.0 * number, 2.0), Round(3.0, 2.0)) for number in range(1, 9)]
    lines = report(busy, 1_000_000).splitlines()
    assert "1 % would be seen" in lines[3]
    assert "too wide to see 1 %" in lines[4]


def test_differences_are_written_in_percent() -> None:
    assert str(Interval(1.004, 0.998, 1.0102)) == "+0.40% (95 %: -0.20% to +1.02%)"


def test_the_cpu_of_a_process_counts_threads_that_ended() -> None:
    before_s = cpu_s(os.getpid())
    worker = threading.Thread(target=lambda: sum(range(300_000)))
    worker.start()
    worker.join()
    assert cpu_s(os.getpid()) > before_s
