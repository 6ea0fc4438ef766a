"""What moved since the figures were last published: each row's ratio beside that of docs/benchmarks.json.

A row moved if the two ranges of ratios have no value in common: `better` or `worse` by the side on which the new one is.
Ranges of few rounds part by chance, too: of three rounds beside three, one row in ten. `chance` says how often, so that no one
takes one row of seventy for news. A row of so few rounds that chance alone would part one case in five has no verdict.
The ratio is to the peer of the same run, so that machines may differ; what differs stands beside the row all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Final, Literal

from benchmarks.published import Published
from benchmarks.samples import Finding, Sample, Spread, findings

Direction = Literal["better", "worse", "same", "too few rounds"]
CHANCE_MAX: Final = 0.2
_ORDER: Final[Sequence[Direction]] = ("worse", "better", "same", "too few rounds")
_LEFT_OUT: Final = frozenset({"records/s", "RSS MB"})
Row = tuple[str, str, str, str]
"""Measure, condition, quantity, contender."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """One row's ratio to the peer, as it was published and as it is now."""

    row: Row
    published: Spread
    now: Spread
    verdict: Direction
    chance: float
    """The probability that ranges of that many rounds have nothing in common although nothing changed."""
    conditions: tuple[str, ...]
    """What was different when the row was published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All rows that a run has in common with the published ones, and those that have no partner."""

    movements: tuple[Movement, ...]
    unpublished: tuple[Row, ...]
    """Rows of this run that were never published, or that have no ratio on one of the sides."""


def compare(old: Published, facts: Mapping[str, Any], samples: Sequence[Sample], peer: str) -> Comparison:
    """Compares a run, which `facts` describe, with what is published."""
    before = {_row(finding): finding for finding in findings(old.samples, peer)}
    old_rounds, new_rounds = _rounds(old.samples), _rounds(samples)
    movements, unpublished = [], []
    for finding in findings(samples, peer):
        row = _row(finding)
        if finding.contender == peer or finding.quantity in _LEFT_OUT:
            continue
        known = before.get(row)
        if known is None or known.ratio is None or finding.ratio is None:
            unpublished.append(row)
            continue
        chance = chance_of_parting(old_rounds[row], new_rounds[row])
        movements.append(
            Movement(
                row=row,
                published=known.ratio,
                now=finding.ratio,
                verdict=_verdict(known.ratio, finding, chance),
                chance=chance,
                conditions=differences(_run_of(old, finding.measure), facts),
            )
        )
    movements.sort(key=lambda movement: _ORDER.index(movement.verdict))
    return Comparison(movements=tuple(movements), unpublished=tuple(unpublished))


def chance_of_parting(published_rounds: int, rounds: int) -> float:
    """Returns how probable it is that all values of one side lie above all of the other if both are drawn alike."""
    return 2 / comb(published_rounds + rounds, rounds)


def differences(published: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what differs in machine, versions and length of two runs, each as `what: published -> now`."""
    before, after = _conditions(published or {}), _conditions(now)
    return tuple(
        f"{key}: {before[key]} -> {after[key]}"
        for key in before
        if key in after and before[key] != after[key]
    )


def as_text(comparison: Comparison) -> str:
    """Returns the table that a person reads after a run."""
    if not comparison.movements:
        return "Nothing of this run can be compared with docs/benchmarks.json: no row has a ratio in both.\n"
    notes: dict[tuple[str, ...], int] = {}
    lines = [
        "| moved | what | figure | published | now | now / published | conditions |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for movement in comparison.movements:
        measure, condition, quantity, contender = movement.row
        note = ""
        if movement.conditions:
            note = f"[{notes.setdefault(movement.conditions, len(notes) + 1)}]"
        lines.append(
            f"| {movement.verdict} | {measure}, {condition} ({contender}) | {quantity} "
            f"| {_spread(movement.published)} | {_spread(movement.now)} "
            f"| {_factor(movement)} | {note} |"
        )
    lines.append("")
    lines += [f"[{number}] {'; '.join(conditions)}" for conditions, number in notes.items()]
    lines.append(_summary(comparison))
    if comparison.unpublished:
        lines.append(f"Without a published ratio: {_names(comparison.unpublished)}.")
    return "\n".join(lines) + "\n"


def _summary(comparison: Comparison) -> str:
    counts = {
        verdict: sum(movement.verdict == verdict for movement in comparison.movements) for verdict in _ORDER
    }
    by_chance = sum(
        movement.chance for movement in comparison.movements if movement.verdict != "too few rounds"
    )
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return f"moved: {parts}. With so few rounds, about {by_chance:.0f} would have moved by chance alone."


def _verdict(before: Spread, finding: Finding, chance: float) -> Direction:
    now = finding.ratio
    assert now is not None
    if chance > CHANCE_MAX:
        return "too few rounds"
    if now.lowest <= before.highest and before.lowest <= now.highest:
        return "same"
    is_higher = now.lowest > before.highest
    return "better" if is_higher == (finding.better == "higher") else "worse"


def _row(finding: Finding) -> Row:
    return finding.measure, finding.condition, finding.quantity, finding.contender


def _rounds(samples: Iterable[Sample]) -> dict[Row, int]:
    rounds: dict[Row, set[int]] = {}
    for sample in samples:
        row = sample.measure, sample.condition, sample.quantity, sample.contender
        rounds.setdefault(row, set()).add(sample.round_number)
    return {row: len(numbers) for row, numbers in rounds.items()}


def _run_of(old: Published, measure: str) -> Mapping[str, Any] | None:
    return next((run for run in old.runs if measure in run["shown"]), None)


def _conditions(facts: Mapping[str, Any]) -> dict[str, str]:
    """Returns what a figure depends on besides the code that is measured."""
    parts = {key: str(value) for key, value in facts.get("machine", {}).items()}
    parts |= {
        f"{key}": contender["title"]
        for key, contender in facts.get("contenders", {}).items()
        if key == "kafka"
    }
    for side in ("producer", "consumer"):
        if side in facts:
            parts[f"{side}'s client"] = str(facts[side]["client"])
    parts |= {key: str(facts[key]) for key in ("plan", "records", "engine") if key in facts}
    return parts


def _spread(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.lowest:.2f}–{spread.highest:.2f})"


def _factor(movement: Movement) -> str:
    if not movement.published.median:
        return ""
    return f"{movement.now.median / movement.published.median:.2f}"


def _names(rows: Iterable[Row]) -> str:
    return ", ".join(dict.fromkeys(measure for measure, _, _, _ in rows))
