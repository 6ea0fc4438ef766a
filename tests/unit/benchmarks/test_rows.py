"""The arithmetic of the benchmarks' rows."""

import os
from pathlib import Path

import pytest
from benchmarks.broker.catch_up import Others, chill, figures_of, percentile
from benchmarks.broker.recovery import figures_of as recovery_figures


def test_delays_are_parted_by_when_records_were_due() -> None:
    """Two quiet seconds of 1 ms after one of warm-up, then one second beside the reader with 3 ms, then calm."""
    acknowledged = [(second + number / 100, 1.0) for second in (0, 1, 2, 4) for number in range(100)]
    acknowledged += [(3 + number / 100, 3.0) for number in range(100)]
    delivered = [(due, 2 * delay) for due, delay in acknowledged]
    others = Others(acknowledged=acknowledged, delivered=delivered)
    figures = figures_of(others, began=3.0, ended=4.0, count=1_000_000)
    assert figures["p99 ms of acknowledgement without"] == (1.0, "lower")
    assert figures["p99 ms of acknowledgement with"] == (3.0, "lower")
    assert figures["p99 of acknowledgement, times of without"] == (3.0, "lower")
    assert figures["p99 ms of delivery with"] == (6.0, "lower")
    assert figures["MB/s"] == (1024.0, "higher")


def test_a_slow_start_is_warm_up_and_does_not_count() -> None:
    delays = [(number / 100, 500.0 if number < 100 else 1.0) for number in range(400)]
    figures = figures_of(Others(acknowledged=delays, delivered=delays), began=3.0, ended=4.0, count=1)
    assert figures["p99 ms of acknowledgement without"] == (1.0, "lower")


def test_a_reader_that_was_done_before_a_record_was_due_is_no_figure() -> None:
    delays = [(float(number), 1.0) for number in range(10)]
    with pytest.raises(RuntimeError, match="too little to read"):
        figures_of(Others(acknowledged=delays, delivered=delays), began=5.1, ended=5.2, count=1)


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_percentiles(share: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == value


def test_chilling_counts_the_bytes_of_the_topics_logs_alone(tmp_path: Path) -> None:
    for name, size in (("cold-0/0.log", 10), ("cold-0/0.index", 7), ("cold-1/0.log", 5), ("hot-0/0.log", 99)):
        path = tmp_path / "disk" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    assert chill(tmp_path, "cold") == 15


def test_a_recovery_within_what_a_clean_start_varies_has_no_rate() -> None:
    assert recovery_figures(1000, 1.1, 0.5, 1.0, 0.5).keys() == {"s", "s after a clean stop"}
    figures = recovery_figures(1000, 3.0, 2.5, 1.0, 0.5)
    assert figures["batches/s"] == (500.0, "higher")
    assert figures["broker CPU s per million batches"] == (2000.0, "lower")
