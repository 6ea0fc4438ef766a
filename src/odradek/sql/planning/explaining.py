"""EXPLAIN: what a query does, step by step, and which steps keep state."""

from __future__ import annotations

from odradek.sql.planning.plan import Plan
from odradek.sql.planning.steps import Step


def explain(plan: Plan) -> str:
    """`native` steps are plain Spark; `stateful` ones keep something of their keys, and have a changelog."""
    lines = list(_lines(plan.query.step, 0))
    if plan.sink is not None:
        key, value = plan.sink.key_format.name, plan.sink.value_format.name
        lines.insert(0, f"write to topic {plan.sink.topic}, key {key}, value {value}")
        lines[1:] = [f"  {line}" for line in lines[1:]]
    return "\n".join(lines)


def _lines(step: Step, depth: int) -> list[str]:
    kind = "stateful" if step.has_state else "native"
    lines = [f"{'  ' * depth}{kind}: {step.shown()}"]
    for source in step.inputs:
        lines += _lines(source, depth + 1)
    return lines
