"""The pages of published results: what a run measured replaces the rows of the same measures, and all else stays.

So a part can be measured again without the hours of the whole. docs/benchmarks.md has the rows that a user asks for.
The page of its history has all rows, and the run of each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import report
from benchmarks.broker import limits
from benchmarks.contenders import Contender
from benchmarks.samples import Finding, Sample, findings

_BEGIN, _END = "<!-- results -->\n", "<!-- /results -->"
_REPEATS: Final = {"records/s", "RSS MB"}
"""Quantities that repeat others of the same samples (MB/s, PSS MB)."""
_DETAILS: Final = (
    ("transactions", "p50 ms"),
    ("start to first acknowledged record", "restart after SIGTERM"),
    ("3 brokers: kill -9 to the next acknowledgement", "of the controller, a follower"),
    ("3 brokers: memory", "at rest"),
    ("3 brokers: acknowledgement", "p99.9 ms"),
    ("3 brokers: topics made", "answered"),
    ("3 brokers: topics made", "led"),
    ("3 brokers: restart after kill -9 of all", "led"),
    ("compaction", "3 of each key, none"),
    ("catch-up reader", "without"),
    ("recovery after kill -9", "batches/s"),
    ("recovery after kill -9", "after a clean stop"),
)
"""Rows that explain another row: their measure, and a part of their conditions and figure.

Only the table of all rows has them.
"""


class Published(NamedTuple):
    """Runs with what is left of them, the oldest first, and their samples."""

    runs: list[dict[str, Any]]
    """The facts of each; `shown` names the measures whose figures are of this run."""
    samples: list[Sample]


def load(path: Path) -> Published:
    """What `path`, the page's JSON file, holds; nothing if there is none."""
    if not path.exists():
        return Published([], [])
    document = json.loads(path.read_text(encoding="utf-8"))
    samples = [Sample(**item) for item in document["samples"]]
    runs = document.get("runs")
    if runs is None:
        facts = {key: value for key, value in document.items() if key not in ("findings", "samples")}
        runs = [{**facts, "shown": _measures(samples)}]
    return Published(runs, samples)


def replaced(old: Published, facts: dict[str, Any], samples: Sequence[Sample]) -> Published:
    """Puts another run's samples in the place of those of the same measures; what is new comes last."""
    new = _measures(samples)
    runs = []
    for run in old.runs:
        shown = [measure for measure in run["shown"] if measure not in new]
        if shown:
            runs.append({**run, "shown": shown})
    order = [*_measures(old.samples), *new]
    all_samples = [*(sample for sample in old.samples if sample.measure not in new), *samples]
    all_samples.sort(key=lambda item: order.index(item.measure))
    return Published([*runs, {**facts, "shown": new}], all_samples)


def write(page: Path, published: Published, who: Sequence[Contender], peer: str) -> None:
    """Puts a table between the marks of the page, and all rows and their runs between those of its history.

    Samples and chart become files beside the page. A page without its marks is an error, and nothing is written then.
    """
    history = history_of(page)
    result = findings(published.samples, peer)
    short = report.markdown(filter(_on_page, result), who, peer, cpu_beside=True)
    runs = "".join(f"- {_sentence(run)}\n" for run in published.runs)
    texts = {
        page: with_section(page, _BEGIN, _END, f"{_summary(page, published.runs)}\n\n{short}"),
        history: with_section(history, _BEGIN, _END, f"{runs}\n{report.markdown(result, who, peer)}"),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    report.write_json(page.with_suffix(".json"), {"runs": published.runs}, published.samples, result)
    report.draw(page.with_suffix(".png"), result, "Odradek beside Apache Kafka")


def history_of(page: Path) -> Path:
    """Returns the page beside `page` that has all rows."""
    return page.with_name(f"{page.stem}-history{page.suffix}")


def with_section(page: Path, begin: str, end: str, section: str) -> str:
    """Returns the text of `page` with another section between the marks `begin` and `end`."""
    text = page.read_text(encoding="utf-8")
    if begin not in text or end not in text.split(begin, 1)[1]:
        raise ValueError(f"{page} has no section between {begin.strip()} and {end}: put both marks into it")
    before, rest = text.split(begin, 1)
    return before + begin + section + end + rest.split(end, 1)[1]


def _on_page(finding: Finding) -> bool:
    row = f"{finding.condition}, {finding.quantity}"
    is_detail = any(finding.measure == measure and part in row for measure, part in _DETAILS)
    return not is_detail and finding.quantity not in _REPEATS


def _summary(page: Path, runs: Sequence[dict[str, Any]]) -> str:
    days = sorted({run["finished"][:10] for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    machines = dict.fromkeys(f"{run['machine']['cores']} cores ({run['machine']['cpu']})" for run in runs)
    return (
        f"Runs of {when} on {' and on '.join(machines)}. "
        f"[All rows, and the run of each]({history_of(page).name}#all-rows). "
        f"Every sample: [{page.stem}.json]({page.stem}.json)."
    )


def _sentence(run: dict[str, Any]) -> str:
    where = run["machine"]
    measured = run.get("limits")
    return (
        f"{', '.join(run['shown'])}: {run['plan']} run, finished {run['finished']}, on {where['cores']} cores "
        f"({where['cpu']}), {where['memory_gb']} GB of memory, Linux {where['kernel']}, Python {where['python']}"
        + (f"; {limits.as_text(measured)}" if measured else "")
    )


def _measures(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(sample.measure for sample in samples))
