"""What counts as growth, and what does not."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.soak.picture import draw
from tests.soak.samples import series
from tests.soak.slopes import Point, growth

MEBIBYTE = 1 << 20
MINUTES = range(0, 7200, 60)


def _noisy(base: float, per_hour: float, noise: float) -> list[Point]:
    chance = random.Random(1)
    return [(second, base + per_hour * second / 3600 + chance.uniform(-noise, noise)) for second in MINUTES]


@pytest.mark.parametrize(
    ("points", "is_growing"),
    [
        (_noisy(100 * MEBIBYTE, 40 * MEBIBYTE, MEBIBYTE), True),
        (_noisy(100 * MEBIBYTE, 0.0, 20 * MEBIBYTE), False),
        (_noisy(100 * MEBIBYTE, 2 * MEBIBYTE, MEBIBYTE), False),
        ([(second, 40.0 * MEBIBYTE if second < 900 else 90.0 * MEBIBYTE) for second in MINUTES], False),
        ([(second, 900.0 * MEBIBYTE if second == 6000 else 90.0 * MEBIBYTE) for second in MINUTES], False),
        ([(0.0, 40.0 * MEBIBYTE)], False),
    ],
    ids=["leak", "noise", "less than counts", "step at the beginning", "one spike", "a single point"],
)
def test_a_steady_rise_of_the_second_half_is_growth(points: list[Point], is_growing: bool) -> None:
    assert growth("broker 1 rss_bytes", points).is_growing is is_growing


def test_the_slope_is_that_of_the_line_under_the_noise() -> None:
    slope = growth("broker 1 rss_bytes", _noisy(100 * MEBIBYTE, 40 * MEBIBYTE, MEBIBYTE))

    assert slope.per_hour == pytest.approx(40 * MEBIBYTE, rel=0.05)


def test_a_run_that_was_cut_off_in_the_middle_of_a_line_has_its_series(tmp_path: Path) -> None:
    line = {
        "seconds": 1.0,
        "bystander": {"count": 3, "p50_ms": 2.0},
        "brokers": {"1": {"threads": 5}, "2": None},
    }
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps(line) + "\n" + json.dumps(line)[:40])

    assert series(file) == {"bystander p50_ms": [(1.0, 2.0)], "broker 1 threads": [(1.0, 5)]}


def test_the_picture_has_a_panel_for_each_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "soak.png"

    draw({"broker 1 rss_bytes": _noisy(MEBIBYTE, 0.0, 1.0), "bystander p99_ms": [(0.0, 3.0)]}, "title", file)

    assert file.read_bytes().startswith(b"\x89PNG")
