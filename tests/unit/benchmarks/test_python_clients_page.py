"""The table of Python clients beside each other."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.clients import PAGE
from benchmarks.published import history_of
from benchmarks.python_clients.page import PAGE_PEER, Measurement, markdown, publish, rows_of

FACTS = {
    "machine": {"cores": 2, "cpu": "a processor", "memory_gb": 8, "kernel": "6.1", "python": "3.11.7"},
    "finished": "today",
    "rounds": 3,
    "megabytes": 40,
    "clients": "other 1.0",
}


def measured(client: str, round_number: int, rate: float, cpu: float, what: str = "produce") -> Measurement:
    return Measurement(
        what=what,
        value_bytes=1024,
        client=client,
        round_number=round_number,
        records_per_second=rate,
        user_seconds_per_million=cpu * 0.75,
        system_seconds_per_million=cpu * 0.25,
    )


def table(page: Path) -> list[str]:
    """Returns the rows of figures of the section."""
    section = page.read_text(encoding="utf-8").split("<!-- python clients -->")[1].split("<!-- /python")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


ROUNDS = [
    measured("odradek", 0, 300.0, 1.0),
    measured(PAGE_PEER, 0, 100.0, 4.0),
    measured(PAGE_PEER, 1, 200.0, 4.0),
    measured("odradek", 1, 300.0, 2.0),
    measured(PAGE_PEER, 2, 100.0, 4.0),
    measured("odradek", 2, 200.0, 4.0),
]


def test_ratios_are_of_the_same_round_with_their_spread() -> None:
    (row,) = rows_of(ROUNDS)
    assert (row.rate_ratio.lowest, row.rate_ratio.median, row.rate_ratio.highest) == (1.5, 2.0, 3.0)
    assert (row.cpu_ratio.lowest, row.cpu_ratio.median, row.cpu_ratio.highest) == (0.25, 0.5, 1.0)
    assert markdown([row]).splitlines()[2] == (
        "| produce | 1 KiB | confluent-kafka | 100 | 300 | 2.00 (1.50–3.00) | 3.00 + 1.00 | 1.50 + 0.50 | 0.50 (0.25–1.00) |"
    )


def test_what_has_no_figure_of_ours_has_no_row() -> None:
    assert rows_of([measured("other", 0, 1.0, 1.0, what="consume")]) == []


def test_publishing_replaces_the_section_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    history = tmp_path / "page-history.md"
    for path in (page, history):
        path.write_text(
            "before\n<!-- python clients -->\nold\n<!-- /python clients -->\nafter\n", encoding="utf-8"
        )
    slower = [replace(entry, client="slower") for entry in ROUNDS if entry.client == PAGE_PEER]
    publish(page, FACTS, [*ROUNDS, *slower])
    assert [line.split(" | ")[2] for line in table(page)] == [PAGE_PEER]
    assert [line.split(" | ")[2] for line in table(history)] == [PAGE_PEER, "slower"]
    assert "3 rounds of about 40 MB" in history.read_text(encoding="utf-8")
    publish(page, FACTS, ROUNDS)
    once = page.read_text(encoding="utf-8")
    assert once.startswith("before\n")
    assert once.endswith("<!-- /python clients -->\nafter\n")
    assert "old" not in once
    assert "2.00 (1.50–3.00)" in once
    assert "3 rounds of about 40 MB" in once
    publish(page, FACTS, ROUNDS)
    assert page.read_text(encoding="utf-8") == once
    samples = json.loads((tmp_path / "page-python-clients.json").read_text(encoding="utf-8"))
    assert [sample["records_per_second"] for sample in samples["measurements"]] == [
        300.0,
        100.0,
        200.0,
        300.0,
        100.0,
        200.0,
    ]


def test_a_page_without_the_section_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n", encoding="utf-8")
    with pytest.raises(ValueError, match="put both marks into it"):
        publish(page, FACTS, ROUNDS)
    assert page.read_text(encoding="utf-8") == "text\n"


def test_the_published_page_has_the_section(tmp_path: Path) -> None:
    page = tmp_path / PAGE.name
    for path in (PAGE, history_of(PAGE)):
        shutil.copy(path, tmp_path / path.name)
    publish(page, FACTS, ROUNDS)
    assert len(table(history_of(page))) == 1
    assert "## Python clients" in page.read_text(encoding="utf-8")
