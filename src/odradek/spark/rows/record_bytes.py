"""Columns of bytes to values in a format with a schema, and back: in functions of a plan, in the source and in the sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from odradek.model.errors import OdradekError
from odradek.values.formats.schema_format import SchemaFormat


def record_decoder(form: SchemaFormat, arrow: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Returns a function from bytes to {value, problem}. A record that cannot be decoded, or does not fit the type, is null
    with its problem: the others of the batch go on."""

    def decode(datas: pa.Array) -> pa.Array:
        values: list[object] = []
        problems: list[str | None] = []
        for data in datas.to_pylist():
            value, problem = (None, None) if data is None else _decoded(form, data)
            values.append(value)
            problems.append(problem)
        try:
            column = pa.array(values, arrow)
        except Exception:  # noqa: BLE001 - of many kinds; value by value it shows which do not fit
            column = pa.array(_fitting(values, problems, arrow, form.name), arrow)
        return pa.StructArray.from_arrays(
            [column, pa.array(problems, pa.string())],
            fields=[pa.field("value", arrow), pa.field("problem", pa.string())],
        )

    return decode


def _decoded(form: SchemaFormat, data: bytes) -> tuple[object, str | None]:
    """The value of a record, or its problem. What is no matter of the record is raised: a registry that does not answer."""
    try:
        return form.decode(data), None
    except (OdradekError, OSError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - foreign data: whatever a parser stumbles over is wrong data
        return None, _problem(form.name, error)


def _fitting(
    values: Sequence[object], problems: list[str | None], arrow: pa.DataType, name: str
) -> list[object]:
    """Returns the values that fit the type; of the others, null, and what is wrong is among the problems."""
    fitting: list[object] = []
    for index, value in enumerate(values):
        try:
            pa.array([value], arrow)
            fitting.append(value)
        except Exception as error:  # noqa: BLE001 - as above
            fitting.append(None)
            problems[index] = _problem(name, error)
    return fitting


def _problem(name: str, error: Exception) -> str:
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    text = f"it is not {name}: {kind}{error!s:.200}"
    return text.encode(errors="backslashreplace").decode()


def record_encoder(form: SchemaFormat) -> Callable[[pa.Array], pa.Array]:
    """Returns a function from values to bytes. ValueError for a value that the format cannot hold."""

    def encode(values: pa.Array) -> pa.Array:
        rows = values.to_pylist(maps_as_pydicts="strict")
        return pa.array([None if row is None else _bytes_of(form, row) for row in rows], pa.binary())

    return encode


def _bytes_of(form: SchemaFormat, value: object) -> bytes | None:
    try:
        return form.encode(value)
    except ValueError as error:
        raise ValueError(
            f"a record cannot be written as {form.name}: {error!s:.200}: {value!s:.200}"
        ) from None
