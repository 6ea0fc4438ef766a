"""The pages of published results keep what a run did not measure, and the first has fewer rows than its history."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from benchmarks import load, published
from benchmarks.broker import limits
from benchmarks.contenders import DURABLE, PEER, Contender, contenders
from benchmarks.odradek_node import Node
from benchmarks.published import Published
from benchmarks.samples import Sample

MACHINE = {"cores": 2, "cpu": "a processor", "memory_gb": 8, "kernel": "6.1", "python": "3.11.7"}


def sample(measure: str, value: float, contender: str = "odradek") -> Sample:
    return Sample(
        measure=measure,
        condition="1 KiB",
        quantity="MB/s",
        better="higher",
        contender=contender,
        round_number=0,
        value=value,
    )


def pages(directory: Path) -> tuple[Path, Path]:
    page, history = directory / "page.md", directory / "page-history.md"
    for path in (page, history):
        path.write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    return page, history


def case(measure: str, condition: str, quantity: str) -> list[Sample]:
    """Returns a figure of Kafka's and one of ours, twice as high."""
    return [
        Sample(
            measure=measure,
            condition=condition,
            quantity=quantity,
            better="lower",
            contender=contender,
            round_number=0,
            value=value,
        )
        for contender, value in ((PEER, 5.0), (DURABLE, 10.0))
    ]


def rows(page: Path) -> list[list[str]]:
    """Returns the cells of each row of the page's table, that of the heads first."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def run(finished: str) -> dict[str, Any]:
    return {"plan": "quick", "finished": finished, "machine": MACHINE}


def test_a_run_takes_the_place_of_what_it_measured_and_of_nothing_else() -> None:
    first = published.replaced(
        Published([], []), run("yesterday"), [sample("produce", 1.0), sample("consume", 2.0)]
    )
    second = published.replaced(first, run("today"), [sample("consume", 3.0)])
    assert [(entry["finished"], entry["shown"]) for entry in second.runs] == [
        ("yesterday", ["produce"]),
        ("today", ["consume"]),
    ]
    assert [(record.measure, record.value) for record in second.samples] == [
        ("produce", 1.0),
        ("consume", 3.0),
    ]
    third = published.replaced(second, run("at last"), [sample("produce", 4.0)])
    assert [entry["finished"] for entry in third.runs] == ["today", "at last"]
    assert [(record.measure, record.value) for record in third.samples] == [
        ("produce", 4.0),
        ("consume", 3.0),
    ]


def test_what_was_published_is_read_back_and_says_of_each_figure_when_it_was_taken(tmp_path: Path) -> None:
    page, history = pages(tmp_path)
    samples = [sample("produce", 2.0), sample("produce", 1.0, PEER)]
    both = published.replaced(Published([], []), run("yesterday"), samples)
    both = published.replaced(both, run("today"), [sample("consume", 3.0)])
    published.write(page, both, contenders(None), PEER)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert (
        "Runs of today to yesterday on 2 cores (a processor). [All rows, and the run of each](page-history.md#all-rows)."
        in text
    )
    assert "| produce | 1 KiB | MB/s | 2.00 |" in text
    assert "- produce: quick run, finished yesterday" in history.read_text()
    assert "- consume: quick run, finished today" in history.read_text()
    assert published.load(page.with_suffix(".json")) == both


def test_the_json_of_a_single_run_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    samples = [{**vars_of(sample("produce", 2.0))}]
    path.write_text(json.dumps({**run("yesterday"), "findings": [], "samples": samples}))
    figures = published.load(path)
    assert figures == Published([{**run("yesterday"), "shown": ["produce"]}], [sample("produce", 2.0)])
    assert published.load(tmp_path / "none.json") == Published([], [])


def vars_of(figure: Sample) -> dict[str, Any]:
    return {name: getattr(figure, name) for name in Sample.__slots__}


def test_a_run_says_what_its_disk_and_memory_can_do(tmp_path: Path) -> None:
    measured = limits.limits(tmp_path, appends=20, copies=2)
    assert 0 < measured["fsync_p50_ms"] <= measured["fsync_p99_ms"]
    assert measured["copy_gb_s"] > 0
    assert not list(tmp_path.iterdir()), "the file of the appends is removed"
    page, history = pages(tmp_path)
    facts = {**run("today"), "limits": {"fsync_p50_ms": 0.21, "fsync_p99_ms": 1.5, "copy_gb_s": 8.04}}
    both = published.replaced(Published([], []), facts, [sample("produce", 2.0)])
    published.write(page, both, contenders(None), PEER)
    limits_text = "; a bare fsync of 1 KiB took 0.21 ms (p99 1.50 ms), one core copied 8.0 GB/s\n"
    assert limits_text in history.read_text()


def published_rows(tmp_path: Path, *cases: tuple[str, str, str], peer: bool = True) -> tuple[Path, Path]:
    page, history = pages(tmp_path)
    kafka, odradek = Contender(key=PEER, title="Kafka", promise="", make=no_node), contenders(None)[0]
    samples = [figure for kind in cases for figure in case(*kind)]
    both = published.replaced(Published([], []), run("2026-01-01T10:00:00Z"), samples)
    published.write(page, both, [kafka, odradek] if peer else [odradek], PEER)
    return page, history


def no_node(directory: Path) -> Node:
    raise AssertionError(f"nothing is measured on {directory}")


def test_cpu_stands_beside_the_first_row_of_its_measure_and_condition(tmp_path: Path) -> None:
    page, history = published_rows(
        tmp_path,
        ("recovery", "50 partitions", "s"),
        ("recovery", "50 partitions", "s after a clean stop"),
        ("recovery", "50 partitions", "broker CPU s per million"),
        ("cost of a request", "10 connections", "broker CPU s per 10,000"),
    )
    ratio = "2.00 (2.00–2.00) worse"
    assert rows(page) == [
        [
            "what",
            "conditions",
            "figure",
            "Kafka",
            "Odradek",
            "Odradek / Kafka",
            "broker CPU: Odradek / Kafka",
        ],
        ["recovery", "50 partitions", "s", "5.00", "10.0", ratio, ratio],
        ["recovery", "50 partitions", "s after a clean stop", "5.00", "10.0", ratio, ""],
        ["cost of a request", "10 connections", "broker CPU s per 10,000", "5.00", "10.0", ratio, ""],
    ]
    assert ["recovery", "50 partitions", "broker CPU s per million", "5.00", "10.0", ratio] in rows(history)


def test_without_the_peer_cpu_has_a_row(tmp_path: Path) -> None:
    cases = [("produce", "1 KiB", "MB/s"), ("produce", "1 KiB", "broker CPU s per GB in")]
    page, _ = published_rows(tmp_path, *cases, peer=False)
    assert [row[2] for row in rows(page)] == ["figure", "MB/s", "broker CPU s per GB in"]


def test_rows_that_repeat_or_explain_others_are_in_the_history_only(tmp_path: Path) -> None:
    cases = [
        ("produce", "1 KiB", "MB/s"),
        ("produce", "1 KiB", "records/s"),
        ("memory", "at rest", "PSS MB"),
        ("memory", "at rest", "RSS MB"),
        ("catch-up reader", "cold", "p99 ms of acknowledgement with"),
        ("catch-up reader", "cold", "p99 ms of acknowledgement without"),
        ("transactions", "one producer", "transactions/s"),
        ("transactions", "one producer", "p50 ms"),
        ("acknowledgement", "acks=all", "p50 ms"),
    ]
    page, history = published_rows(tmp_path, *cases)
    assert [row[2] for row in rows(page)[1:]] == [
        "MB/s",
        "PSS MB",
        "p99 ms of acknowledgement with",
        "transactions/s",
        "p50 ms",
    ]
    assert [tuple(row[:3]) for row in rows(history)[1:]] == cases


def test_nothing_is_written_if_one_of_the_pages_has_no_section(tmp_path: Path) -> None:
    page, history = pages(tmp_path)
    history.write_text("text\n")
    before = page.read_text()
    with pytest.raises(ValueError, match=r"page-history\.md has no section"):
        published.write(page, Published([run("today") | {"shown": []}], []), contenders(None), PEER)
    assert (page.read_text(), history.read_text()) == (before, "text\n")
    assert not page.with_suffix(".json").exists()


def test_the_published_pages_have_a_section_for_results(tmp_path: Path) -> None:
    page = load.ROOT / "docs" / "benchmarks.md"
    paths = [page, published.history_of(page)]
    for path in paths:
        shutil.copy(path, tmp_path / path.name)
    both = published.replaced(Published([], []), run("today"), [sample("produce", 2.0)])
    published.write(tmp_path / page.name, both, contenders(None), PEER)
    for path in paths:
        assert "| produce | 1 KiB | MB/s | 2.00 |" in (tmp_path / path.name).read_text()
