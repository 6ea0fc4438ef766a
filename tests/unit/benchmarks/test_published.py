"""The page of published results keeps what a run did not measure."""

import json
from pathlib import Path
from typing import Any

from benchmarks import published
from benchmarks.broker import limits
from benchmarks.contenders import PEER, contenders
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
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    samples = [sample("produce", 2.0), sample("produce", 1.0, PEER)]
    both = published.replaced(Published([], []), run("yesterday"), samples)
    both = published.replaced(both, run("today"), [sample("consume", 3.0)])
    published.write(page, both, contenders(None), PEER)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "- produce: quick run, finished yesterday" in text
    assert "- consume: quick run, finished today" in text
    assert "| produce | 1 KiB | MB/s | 2.00 |" in text
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
    page = tmp_path / "page.md"
    page.write_text("<!-- results -->\n<!-- /results -->\n")
    facts = {**run("today"), "limits": {"fsync_p50_ms": 0.21, "fsync_p99_ms": 1.5, "copy_gb_s": 8.04}}
    both = published.replaced(Published([], []), facts, [sample("produce", 2.0)])
    published.write(page, both, contenders(None), PEER)
    assert (
        "; a bare fsync of 1 KiB took 0.21 ms (p99 1.50 ms), one core copied 8.0 GB/s\n" in page.read_text()
    )
