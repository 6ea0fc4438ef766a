"""Prepares a Spark session for functions of SQL: with settings, and functions in Python.

An error in a function gives null, and a line in the log: ksqlDB's processing log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy
from odradek.sql.functions.python import java_time, json_values, text_and_bytes
from odradek.telemetry import events

if TYPE_CHECKING:
    import pyspark.sql as sql
    import pyspark.sql.functions as sf
    from pyspark.sql._typing import UserDefinedFunctionLike
else:
    sf = lazy("pyspark.sql.functions")

SESSION_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.legacy.sizeOfNull": "false",
}
"""The settings that texts of functions need: errors are null, integers wrap as in Java, the last of equal keys stays."""

_log = events.get("sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A function in Python that Spark calls.

    `sees_nulls`: it is called with nulls, too; otherwise a null argument gives null. `ddl`: its type in Spark.
    """

    name: str
    function: Callable[..., object]
    ddl: str
    sees_nulls: bool = False

    def __call__(self, *arguments: object) -> object:
        if not self.sees_nulls and None in arguments:
            return None
        try:
            return self.function(*arguments)
        except Exception as error:  # noqa: BLE001 - a record's values: an error of one row must not end the query
            _log.warning(
                "function_failed", function=self.name, error=f"{type(error).__name__}: {error!s:.200}"
            )
            return None


BUILT_IN: Final = (
    PythonFunction(name="odradek_round", function=text_and_bytes.rounded, ddl="string"),
    PythonFunction(name="odradek_instr", function=text_and_bytes.position_of, ddl="int", sees_nulls=True),
    PythonFunction(name="odradek_split_bytes", function=text_and_bytes.split_bytes, ddl="array<binary>"),
    PythonFunction(name="odradek_double_from_bytes", function=text_and_bytes.double_from_bytes, ddl="double"),
    PythonFunction(name="odradek_zone", function=text_and_bytes.existing_zone, ddl="string"),
    PythonFunction(name="odradek_parse_time", function=java_time.parse, ddl="bigint"),
    PythonFunction(name="odradek_format_time", function=java_time.format_time, ddl="string"),
    PythonFunction(name="odradek_is_json", function=json_values.is_json, ddl="boolean", sees_nulls=True),
    PythonFunction(name="odradek_json_at", function=json_values.at_path, ddl="string"),
    PythonFunction(name="odradek_json_array_length", function=json_values.array_length, ddl="int"),
    PythonFunction(name="odradek_json_keys", function=json_values.keys, ddl="array<string>"),
    PythonFunction(name="odradek_json_records", function=json_values.records, ddl="map<string,string>"),
    PythonFunction(name="odradek_json_items", function=json_values.items, ddl="array<string>"),
    PythonFunction(name="odradek_json_concat", function=json_values.concatenated, ddl="string"),
    PythonFunction(
        name="odradek_json_array_contains",
        function=json_values.array_contains,
        ddl="boolean",
        sees_nulls=True,
    ),
)


def register(spark: sql.SparkSession, functions: tuple[PythonFunction, ...] = BUILT_IN) -> None:
    """Settings and Python functions, for this session. Again does no harm."""
    for key, value in SESSION_SETTINGS.items():
        spark.conf.set(key, value)
    for function in functions:
        spark.udf.register(function.name, _as_udf(function))


def _as_udf(function: PythonFunction) -> UserDefinedFunctionLike:
    def call(*arguments: object) -> object:
        return function(*arguments)

    return sf.udf(call, function.ddl, useArrow=True)
