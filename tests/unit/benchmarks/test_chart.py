"""The chart at the top of docs/benchmarks.md: which rows it has, in which order, and what stands beside a bar."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import published, report
from benchmarks.report import HEADLINES, chart_figure, chart_rows
from benchmarks.samples import Better, Finding, Spread, findings


def finding(
    low: float, middle: float, high: float, *, better: Better = "higher", row: tuple[str, str, str, str]
) -> Finding:
    measure, condition, quantity, contender = row
    return Finding(
        measure=measure,
        condition=condition,
        quantity=quantity,
        better=better,
        contender=contender,
        values=Spread(median=1, lowest=1, highest=1),
        ratio=Spread(median=middle, lowest=low, highest=high),
    )


WRITES, READS = (tuple(headline[1:]) for headline in HEADLINES[:2])
OTHER = ("sink", "two tasks", "ms", "odradek")


def test_headlines_alone_are_shown_the_best_first() -> None:
    rows = chart_rows(
        [
            finding(1, 1, 1, row=OTHER),
            finding(0.5, 0.6, 0.7, row=WRITES),
            finding(2, 3, 4, row=READS),
        ]
    )
    assert [label for label, _ in rows] == ["read 1 KiB records", "write 1 KiB records"]


def test_where_less_is_better_a_small_ratio_is_good() -> None:
    rows = chart_rows(
        [finding(2, 3, 4, better="lower", row=WRITES), finding(0.1, 0.2, 0.3, better="lower", row=READS)]
    )
    assert [chart_figure(entry) for _, entry in rows] == ["5.0x", "3.0x"]
    assert [entry.verdict for _, entry in rows] == ["better", "worse"]


def test_a_run_without_headlines_shows_what_it_has() -> None:
    assert [label for label, _ in chart_rows([finding(1, 2, 3, row=OTHER)])] == ["sink, two tasks: ms"]


@pytest.mark.parametrize(
    ("spread", "text"),
    [((0.9, 2, 3), "level"), ((12, 17.2, 20), "17x"), ((1.1, 1.25, 2), "1.2x"), ((0.2, 0.25, 0.5), "4.0x")],
)
def test_what_stands_beside_a_bar(spread: tuple[float, float, float], text: str) -> None:
    assert chart_figure(finding(*spread, row=WRITES)) == text


def test_the_published_page_has_most_headlines_and_draws_them(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    results = findings(published.load(root / "docs" / "benchmarks.json").samples, "kafka")
    assert len(chart_rows(results)) >= len(HEADLINES) - 1  # requests of one record are not published yet
    report.draw(tmp_path / "chart.png", results, "a chart")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_without_ratios_nothing_is_drawn(tmp_path: Path) -> None:
    report.draw(tmp_path / "chart.png", [], "a chart")
    assert not (tmp_path / "chart.png").exists()
