"""The schemas of keys and values that a program declares, followed through its operators.

Spark computes most types, when a query starts. Where operators pass a declared schema on, an output in a format that cannot
hold it is refused when the program is written.
"""

from __future__ import annotations

from typing import Final

from odradek.streams.plan.keyed import (
    Aggregated,
    Cogrouped,
    Folded,
    FoldedBy,
    Processed,
    ProcessorOutput,
    StreamStreamJoin,
    StreamTableJoin,
    Suppressed,
    TableTableJoin,
)
from odradek.streams.plan.operators import (
    AsStream,
    AsTable,
    Filtered,
    Merged,
    Operator,
    Peeked,
    Repartitioned,
    Selected,
    TopicSource,
)
from odradek.streams.plan.schemas import (
    DeclaredSchema,
    Format,
    check_holds,
    checked_format,
    is_bare,
    parsed_schema,
)

_PASSING: Final = (AsStream, AsTable, Filtered, Merged, Peeked, Repartitioned, Suppressed)
"""Operators whose records have the keys and values of their first input."""
_SAME_KEY: Final = (StreamStreamJoin, StreamTableJoin, TableTableJoin, ProcessorOutput)


def written_format(operator: Operator, role: str, form: Format) -> Format:
    """Returns the format in which keys or values of an operator are written. ConfigError for one that cannot hold them,
    as far as the program declares their types.
    """
    checked_format(form, role)
    schema = known_schema(operator, role)
    if schema is not None:
        fields = schema.typed_fields
        check_holds(form, fields, role, bare=is_bare(fields, role), where="to: ")
    return form


def known_schema(operator: Operator, role: str) -> DeclaredSchema | None:
    """Returns the schema of an operator's keys or values; None where only Spark knows it. `role` is key or value."""
    while True:
        match operator:
            case TopicSource():
                return operator.key if role == "key" else operator.value
            case Selected() if (operator.key if role == "key" else operator.value) is not None:
                return None
            case Selected():
                (operator,) = operator.inputs
            case _ if isinstance(operator, _PASSING) or (role == "key" and _keeps_key(operator)):
                operator = operator.inputs[0]
            case _:
                return None if role == "key" else _value_of_code(operator)


def _keeps_key(operator: Operator) -> bool:
    if isinstance(operator, (Aggregated, Folded, FoldedBy)):
        return operator.key is None and operator.window is None
    return isinstance(operator, _SAME_KEY) or (isinstance(operator, Processed) and operator.key is None)


def _value_of_code(operator: Operator) -> DeclaredSchema | None:
    """Returns the schema that a user gives to the values of an operator."""
    match operator:
        case Folded(schema=str(schema)) | FoldedBy(schema=schema) | Cogrouped(schema=schema):
            return parsed_schema(schema, "value")
        case Processed(outputs=(("", schema),)):
            return parsed_schema(schema, "value")
        case ProcessorOutput(inputs=(Processed() as processed,), output=output):
            return parsed_schema(dict(processed.outputs)[output], "value")
    return None
