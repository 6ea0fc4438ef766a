"""Latencies in cells: percentiles are near the exact ones, and moments of records are evenly apart."""

from __future__ import annotations

import math
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.bench.latencies import PERCENTILES, LatencyHistogram, paced

LATENCIES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)


def histogram_of(latencies: list[float]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for latency in latencies:
        histogram.add(latency)
    return histogram


@given(LATENCIES, st.sampled_from([0.1, 25.0, *PERCENTILES, 100.0]))
def test_a_percentile_is_at_most_one_cell_above_the_exact_one(latencies: list[float], percent: float) -> None:
    exact = sorted(latencies)[max(0, math.ceil(len(latencies) * percent / 100 - 1e-9) - 1)]
    seen = histogram_of(latencies).percentile_s(percent)
    assert exact - 2e-6 <= seen <= exact * (1 + 1 / 128) + 2e-6


@given(LATENCIES)
def test_doublings_hold_each_latency_once_and_in_order(latencies: list[float]) -> None:
    doublings = histogram_of(latencies).doublings()
    assert sum(count for _, count in doublings) == len(latencies)
    ends = [end for end, _ in doublings]
    assert all(later == 2 * sooner for sooner, later in pairwise(ends))
    assert doublings[0][1]
    assert doublings[-1][1]
    assert min(latencies) <= ends[0]
    assert max(latencies) <= ends[-1]


def test_without_latencies_there_is_nothing_to_say() -> None:
    histogram = LatencyHistogram()
    assert (histogram.mean_s, histogram.percentile_s(99.0), histogram.max_s) == (0.0, 0.0, 0.0)
    assert histogram.doublings() == []


def test_a_latency_below_zero_or_beyond_the_table_is_counted() -> None:
    histogram = histogram_of([-1.0, 1e9])
    assert (histogram.count, histogram.max_s) == (2, 1e9)
    assert histogram.percentile_s(50.0) == 0.0
    assert histogram.percentile_s(100.0) <= 1e9


def test_moments_are_evenly_apart_until_the_count_or_the_time_is_reached() -> None:
    assert list(paced(4.0, 3, None)) == [0.0, 0.25, 0.5]
    assert list(paced(4.0, 100, 1.0)) == [0.0, 0.25, 0.5, 0.75]
    assert list(paced(None, 3, None)) == [0.0, 0.0, 0.0]
    assert list(islice(paced(None, None, 0.001), 1000)) == [0.0] * 1000


@pytest.mark.parametrize("latencies", [[0.001], [0.000_255, 0.000_256, 0.000_257]])
def test_the_longest_latency_is_no_percentile_s_better(latencies: list[float]) -> None:
    figures = histogram_of(latencies).figures()
    assert figures["p99.9_ms"] <= figures["max_ms"] == round(max(latencies) * 1000, 3)
