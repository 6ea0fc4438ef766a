"""Makes the outline of a program. `python -m odradek.pipelines.outlining` prints it for a file, its arguments, and the suffix
of its outputs, which standard input names: what a user's file does when it is loaded stays in that process.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Final

from odradek.model.errors import OdradekError
from odradek.pipelines.outline import (
    OutputOutline,
    ProgramKind,
    ProgramOutline,
    SourceOutline,
    StateOutline,
)
from odradek.pipelines.program_file import TEXT_CHARS_MAX, LoadedProgram, ProgramSources, load_program
from odradek.runtime.real_bounded_run import follow_lifeline
from odradek.streams.plan import keyed
from odradek.streams.plan.beside import beside
from odradek.streams.plan.operators import (
    AsTable,
    Exploded,
    FrameSource,
    Operator,
    Selected,
    TopicSink,
    TopicSource,
    walk,
)
from odradek.streams.plan.program import Program
from odradek.streams.plan.queries import planned_queries
from odradek.streams.plan.sources import can_be_named, source_names
from odradek.streams.translation.translator import operators_with_old_values

_NOT_STATE: Final = frozenset({"built", "name", "inputs", "emit"})


def outline_of(program: LoadedProgram, suffix: str = "") -> ProgramOutline:
    """Returns the outline of a program that was loaded, before it starts."""
    if program.app is None:
        return ProgramOutline(kind=ProgramKind.PYSPARK)
    plan = program.app.program
    return outline_of_streams(beside(plan, suffix) if suffix else plan)


def outline_of_streams(program: Program) -> ProgramOutline:
    """Returns the outline of a streams plan."""
    with_old = operators_with_old_values(program.ends)
    return ProgramOutline(
        kind=ProgramKind.STREAMS,
        app=program.name,
        partitions=program.partitions,
        outputs=tuple(
            OutputOutline(
                name=query.name,
                topic=sink.topic if isinstance(sink, TopicSink) else None,
                is_topic=isinstance(sink, TopicSink),
                sources=tuple(
                    SourceOutline(name=name, topic=source.topic)
                    for source, name in source_names([sink]).items()
                ),
                states=tuple(
                    StateOutline(name=operator.name, kind=type(operator).__name__, shape=_shape(operator))
                    for operator in walk(sink)
                    if _is_keyed(operator)
                    or (isinstance(operator, AsTable | TopicSource) and operator in with_old)
                ),
                sources_named=can_be_named(sink),
                other_topics=tuple(
                    output.topic
                    for output in query.ends[1:]
                    if isinstance(output, TopicSink) and output.topic is not None
                ),
            )
            for query in planned_queries(program.ends)
            for sink in [query.main]
        ),
    )


def _is_keyed(operator: Operator) -> bool:
    return type(operator).__module__ == keyed.__name__


def _shape(operator: Operator) -> str:
    """Returns what determines an operator's state: its settings, except for when it emits; and the rows that it keeps."""
    own = [
        f"{field.name}={_text(getattr(operator, field.name))}"
        for field in fields(operator)
        if field.name not in _NOT_STATE
    ]
    return "; ".join([*own, *(f"rows {_rows(source)}" for source in operator.inputs)])


def _rows(operator: Operator) -> str:
    """Returns the columns of its values, as far as a plan knows them."""
    match operator:
        case TopicSource():
            return operator.value.ddl
        case FrameSource():
            return _text(operator.value)
        case Selected(value=tuple(value)):
            below = f" of {_rows(operator.inputs[0])}" if "*" in value else ""
            return _text(value) + below
        case Exploded():
            return f"elements of {_text(operator.elements)}"
    if _is_keyed(operator):
        return f"results of {operator.name}"
    return _rows(operator.inputs[0])  # merged streams have the same columns


def _text(value: object) -> str:
    """Returns a text that is the same in every process: for a function or an object, its name."""
    if isinstance(value, tuple):
        return ", ".join(map(_text, value))
    if value is None or isinstance(value, str | int | float | bool):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return repr(value)
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    described = str(value)
    return type(value).__name__ if " at 0x" in described else described


def main() -> None:
    """Prints the outline, or what is wrong, as JSON on the last line. Standard input names the program, and where it may be."""
    follow_lifeline(int(sys.argv[1]))
    order = json.load(sys.stdin)
    try:
        directories = order.get("directories")
        sources = None if directories is None else ProgramSources(directories=tuple(directories))
        program = load_program(Path(order["file"]), order["args"], sources)
        content = {"outline": outline_of(program, order["suffix"]).as_json(), "sha256": program.sha256}
    except OdradekError as error:
        content = {"wrong": str(error)[:TEXT_CHARS_MAX]}
    sys.stdout.write(f"\n{json.dumps(content)}\n")


if __name__ == "__main__":
    main()
