"""A second copy of a program that runs next to the first: it has its own name, and writes to topics of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.model.lazy import lazy
from odradek.streams.plan.operators import Expression, Operator, TopicSink, TopicSource, walk
from odradek.streams.plan.program import Program

if TYPE_CHECKING:
    import pyspark.sql.functions as sf
else:
    sf = lazy("pyspark.sql.functions")


def beside(program: Program, suffix: str) -> Program:
    """Returns a program whose name and output topics end in `suffix`. It reads the same inputs; of topics that it writes itself
    (`through`), it reads its own.
    """
    written = {sink.topic for sink in program.ends if isinstance(sink, TopicSink)}
    copies: dict[Operator, Operator] = {}
    for operator in walk(*program.ends):
        inputs = tuple(copies[source] for source in operator.inputs)
        moved = operator
        if any(before is not after for before, after in zip(operator.inputs, inputs, strict=True)):
            moved = replace(moved, inputs=inputs)
        if isinstance(moved, TopicSource) and moved.topic in written:
            moved = replace(moved, topic=moved.topic + suffix)
        if isinstance(moved, TopicSink):
            moved = _sink(moved, suffix)
        copies[operator] = moved
    return replace(program, name=program.name + suffix, ends=[copies[sink] for sink in program.ends])


def _sink(sink: TopicSink, suffix: str) -> TopicSink:
    if sink.topic is not None:
        return replace(sink, topic=sink.topic + suffix)
    assert sink.topic_expression is not None
    return replace(sink, topic_expression=_with_suffix(sink.topic_expression, suffix))


def _with_suffix(expression: Expression, suffix: str) -> Expression:
    if isinstance(expression, str):
        return f"concat({expression}, '{suffix}')"
    return sf.concat(expression, sf.lit(suffix))
