"""Writes rows to a response, in the content types of /query and /query-stream. Pure.

Source: ksqlDB's HTTP API reference, "Run a query" and "Run push and pull queries".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from odradek.sql.queries.answer import AnswerWriter, QueryAnswer
from odradek.values.formats.row_codec import exact_json

DELIMITED: Final = "application/vnd.ksqlapi.delimited.v1"
JSON: Final = "application/json"
KSQL_V1: Final = "application/vnd.ksql.v1+json"


def json_text(value: object) -> str:
    """Returns JSON with all digits of decimals, and texts for NaN and Infinity. The result can be encoded in UTF-8."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):  # a decimal is among it, or a number that is none
        text = exact_json(value)
    if not text.isascii():
        return text.encode(
            errors="backslashreplace"
        ).decode()  # as JSON escapes half a pair of surrogates, too
    return text


def _header(query_answer: QueryAnswer) -> dict[str, object]:
    return {
        "queryId": query_answer.query_id,
        "columnNames": [column.name for column in query_answer.columns],
        "columnTypes": [column.type for column in query_answer.columns],
    }


def _error(code: int, message: str) -> dict[str, object]:
    return {"@type": "generic_error", "error_code": code, "message": message}


@dataclass(frozen=True, slots=True)
class DelimitedRows:
    """A header object, then an array for each row, each on a line."""

    def begin(self, query_answer: QueryAnswer) -> str:
        return json_text(_header(query_answer)) + "\n"

    def rows(self, rows: Sequence[Sequence[object]]) -> str:
        return "".join(json_text(row) + "\n" for row in rows)

    def idle(self) -> str:
        return ""

    def problem(self, code: int, message: str) -> str:
        return json_text(_error(code, message)) + "\n"

    def end(self, query_answer: QueryAnswer) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class ArrayRows:
    """Writes the rows of a response as one JSON array."""

    def begin(self, query_answer: QueryAnswer) -> str:
        return "[" + json_text(_header(query_answer))

    def rows(self, rows: Sequence[Sequence[object]]) -> str:
        return "".join("," + json_text(row) for row in rows)

    def idle(self) -> str:
        return ""

    def problem(self, code: int, message: str) -> str:
        return "," + json_text(_error(code, message)) + "]"

    def end(self, query_answer: QueryAnswer) -> str:
        return "]"


@dataclass(frozen=True, slots=True)
class StreamedRows:
    """The original format of /query: an array whose members are a header, rows, and a final message, each on a line."""

    def begin(self, query_answer: QueryAnswer) -> str:
        header = {"queryId": query_answer.query_id or "", "schema": query_answer.schema}
        return "[" + json_text({"header": header})

    def rows(self, rows: Sequence[Sequence[object]]) -> str:
        return "".join(",\n" + json_text({"row": {"columns": row}}) for row in rows)

    def idle(self) -> str:
        return "\n"

    def problem(self, code: int, message: str) -> str:
        return ",\n" + json_text({"errorMessage": {"error_code": code, "message": message}}) + "]\n"

    def end(self, query_answer: QueryAnswer) -> str:
        return ",\n" + json_text({"finalMessage": query_answer.final_message}) + "]\n"


def chosen(accept: str, *, path: str) -> tuple[AnswerWriter, str]:
    """Returns the writer and the Content-Type for a request's Accept header."""
    wanted = [part.split(";")[0].strip() for part in accept.split(",")]
    if path == "/query":
        return StreamedRows(), KSQL_V1
    for kind in wanted:
        if kind == DELIMITED:
            break
        if kind == JSON:
            return ArrayRows(), JSON
        if kind == KSQL_V1:
            return StreamedRows(), KSQL_V1
    return DelimitedRows(), DELIMITED
