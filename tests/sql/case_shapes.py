"""The shapes of cases' plans: a few cases that have all of them stand for the others where time is short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.sql.case_files import Case
from tests.sql.case_runner import planned

from odradek.sql.planning import Plan
from odradek.sql.planning.steps import AggregateStep, JoinStep, ReadStep, RekeyStep, Step


def sample(cases: Sequence[Case]) -> list[Case]:
    """The fewest cases, roughly, whose plans have every shape: always the one that adds most, the first of equals."""
    missing = {number: set(_shapes(case)) for number, case in enumerate(cases)}
    chosen = []
    while any(missing.values()):
        best = max(missing, key=lambda number: len(missing[number]))
        chosen.append(best)
        covered = missing.pop(best)
        for shapes in missing.values():
            shapes -= covered
    return [cases[number] for number in sorted(chosen)]


def _shapes(case: Case) -> Iterator[tuple[Any, ...]]:
    catalog, plans = planned(case)
    if catalog.created_functions:
        yield ("functions of users",)
    if any(record.value is None for record in case.written):
        yield ("tombstones",)
    for plan in plans:
        yield from _shapes_of_plan(plan)


def _shapes_of_plan(plan: Plan) -> Iterator[tuple[Any, ...]]:
    assert plan.sink is not None
    yield "key", plan.sink.key_format.name in ("JSON", "DELIMITED")
    steps = [plan.query.step]
    while steps:
        step = steps.pop()
        steps += step.inputs
        yield from _shapes_of_step(step)


def _shapes_of_step(step: Step) -> Iterator[tuple[Any, ...]]:
    name = type(step).__name__
    yield name, "of a table" if step.is_table else "of a stream"
    match step:
        case ReadStep(source=source):
            yield "windows of a source", source.window is not None
        case AggregateStep(window=window):
            yield name, "reads a table" if step.inputs[0].is_table else "reads a stream"
            if window is not None:
                yield name, window.kind
                yield name, "final" if window.final else "changes"
        case JoinStep(way=way, on=on, window=window):
            yield name, way
            yield name, tuple(side.is_table for side in step.inputs)
            yield name, "by foreign key" if on is not None else "by key"
            yield name, "of windows and others" if window is not None else "of the same"
        case RekeyStep(key=key):
            yield name, f"{min(len(key), 2)} parts"
