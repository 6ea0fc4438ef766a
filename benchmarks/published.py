"""The page of published results: what a run measured replaces what stood there of the same measures, all else stays.

So a part can be measured again without the hours of the whole; which run a figure is of, and when, stands on the page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import report
from benchmarks.broker import limits
from benchmarks.contenders import Contender
from benchmarks.samples import Sample, findings

_BEGIN, _END = "<!-- results -->\n", "<!-- /results -->"
_LEFT_OUT: Final = {"records/s", "RSS MB"}
"""Quantities that repeat others of the same samples (MB/s, PSS MB). The page leaves them out; its JSON file has them."""


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
    """Put the table between the page's two marks, and the samples and the chart, which the page shows at its top, beside it."""
    result = findings(published.samples, peer)
    before, rest = page.read_text(encoding="utf-8").split(_BEGIN, 1)
    after = rest.split(_END, 1)[1]
    conditions = "".join(f"- {_sentence(run)}\n" for run in published.runs)
    table = report.markdown([item for item in result if item.quantity not in _LEFT_OUT], who, peer)
    links = "\nEvery sample: [benchmarks.json](benchmarks.json).\n\n"
    page.write_text(before + _BEGIN + conditions + links + table + _END + after, encoding="utf-8")
    report.write_json(page.with_suffix(".json"), {"runs": published.runs}, published.samples, result)
    report.draw(page.with_suffix(".png"), result, "Odradek beside Apache Kafka")


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
