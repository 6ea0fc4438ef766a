"""Records of a stream or table as rows, and a SELECT over one source, for queries that need no Spark."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.sql.analysis.expressions import OVER_HINT, OVER_REFUSAL
from odradek.sql.language.dialect import position_of
from odradek.sql.language.queries import NamedRelation, Query, SelectExpression, SelectStar
from odradek.sql.metastore.catalog import Source
from odradek.sql.queries.answer import AnswerColumn
from odradek.sql.queries.expressions import Compute, LocalScope, NeedsSpark
from odradek.sql.queries.over import OverCall, overs_in, scope_with
from odradek.sql.queries.schema_rows import RecordCodec, SchemaRowCodec, learn_all
from odradek.values.errors import SqlError
from odradek.values.formats.format_info import FormatInfo
from odradek.values.formats.row_codec import FORMATS, SqlRowCodec, UnreadableRecord, shown
from odradek.values.rows import Row, SqlValue
from odradek.values.types import BIGINT, INTEGER, SqlType

_ONE_TIME: Final = struct.Struct(">q")
_TWO_TIMES: Final = struct.Struct(">qq")
_TIME_MAX: Final = (1 << 63) - 1


def codec_of(columns: tuple[tuple[str, SqlType], ...], form: FormatInfo, *, is_key: bool) -> RecordCodec:
    """Returns the codec of columns. SqlError for those that the format does not support."""
    if form.name not in FORMATS:
        return SchemaRowCodec(columns, form, is_key=is_key)
    return SqlRowCodec(format=form.name, columns=columns, is_wrapped=form.wrapped, delimiter=form.delimiter)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Turns the records of a source into rows."""

    source: Source
    keys: RecordCodec
    values: RecordCodec

    @classmethod
    def of(cls, source: Source) -> SourceRows:
        """Returns the rows of a source. NeedsSpark, with the reason, for headers and for a timestamp column of text."""
        if any(column.role == "headers" for column in source.columns):
            raise NeedsSpark(f"pull queries do not read {source.name}, which has columns of HEADERS")
        if source.timestamp is not None and source.timestamp.format is not None:
            raise NeedsSpark(f"pull queries do not read {source.name}, whose TIMESTAMP is a column of text")
        key = tuple((column.name, column.type) for column in source.key)
        value = tuple((column.name, column.type) for column in source.value)
        return cls(
            source,
            codec_of(key, source.key_format, is_key=True),
            codec_of(value, source.value_format, is_key=False),
        )

    async def learn(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Fetches the schemas of keys and values, which `row` and `filled` need. SqlError when the registry does not answer."""
        if isinstance(self.keys, SchemaRowCodec) or isinstance(self.values, SchemaRowCodec):
            await learn_all((self.keys, self.values), tuple(zip(*records, strict=True)) or ((), ()))

    def scope(self, alias: str, *, with_coordinates: bool) -> LocalScope:
        """Returns the names of the columns. `with_coordinates`: also the record's partition and offset."""
        columns: dict[str, SqlType] = {column.name: column.type for column in self.source.columns}
        if self.source.window is not None:
            columns |= {"WINDOWSTART": BIGINT, "WINDOWEND": BIGINT}
        columns["ROWTIME"] = BIGINT
        if with_coordinates:
            columns |= {"ROWPARTITION": INTEGER, "ROWOFFSET": BIGINT}
        return LocalScope(columns, frozenset({alias, self.source.name}))

    def row(
        self, key: bytes | None, value: bytes | None, coordinates: Mapping[str, int] | None = None
    ) -> Row | None:
        """Returns the row of a record; None for a table's delete or its record without key. UnreadableRecord."""
        if value is None or (key is None and self.source.is_table):
            return None
        row: dict[str, SqlValue] = dict(coordinates or {})
        if self.source.window is not None:
            if key is None:
                return None
            key, row["WINDOWSTART"], row["WINDOWEND"] = self._unwindowed(key)
        return self.filled(row, key, value)

    def key_row(self, key: bytes | None, coordinates: Mapping[str, int]) -> Row | None:
        """Returns the columns of a key alone; None when there is no key. UnreadableRecord."""
        if key is None:
            return None
        row: dict[str, SqlValue] = dict(coordinates)
        if self.source.window is not None:
            key, row["WINDOWSTART"], row["WINDOWEND"] = self._unwindowed(key)
        decoded = self.keys.decode(key) or []
        return row | {name: value for (name, _), value in zip(self.keys.columns, decoded, strict=False)}

    def filled(self, row: dict[str, SqlValue], key: bytes | None, value: bytes) -> Row | None:
        """Returns `row` with the columns of key and value."""
        decoded = _named("key", self.keys, key)
        for index, (name, _) in enumerate(self.keys.columns):
            row[name] = None if decoded is None else decoded[index]
        content = _named("value", self.values, value)
        if content is None:
            return None
        for (name, _), of_column in zip(self.values.columns, content, strict=False):
            row[name] = of_column
        stamp = self.source.timestamp
        if stamp is not None and "ROWTIME" in row and row.get(stamp.name) is not None:
            row["ROWTIME"] = row[stamp.name]
        return row

    def _unwindowed(self, key: bytes) -> tuple[bytes, int, int]:
        window = self.source.window
        assert window is not None
        times = _TWO_TIMES if window.size_ms is None else _ONE_TIME
        if len(key) < times.size:
            raise UnreadableRecord(f"a windowed key has at least {times.size} bytes, not {len(key)}")
        bounds = times.unpack(key[-times.size :])
        if window.size_ms is None:
            end_ms, start_ms = bounds
        else:
            start_ms = bounds[0]
            end_ms = min(start_ms + window.size_ms, _TIME_MAX)
        return key[: -times.size], start_ms, end_ms


def _named(role: str, codec: RecordCodec, data: bytes | None) -> list[SqlValue] | None:
    """Returns the columns of a key or value; the error names the one that cannot be read."""
    try:
        return codec.decode(data)
    except UnreadableRecord as error:
        raise UnreadableRecord(f"the {role}: {error}") from error


@dataclass(frozen=True, slots=True)
class LocalSelection:
    """A SELECT over one source: WHERE, then the columns."""

    columns: tuple[AnswerColumn, ...]
    passes: Callable[[Row], bool]
    _values: tuple[tuple[Compute, SqlType], ...]
    overs: tuple[OverCall, ...] = ()
    """The calls with OVER, to compute from all passing rows before `shown`."""

    def shown(self, row: Row) -> list[SqlValue]:
        """Returns a row's values in the form of JSON."""
        return [shown(of(row), kind) for of, kind in self._values]


def selection(query: Query, rows: SourceRows, *, with_coordinates: bool) -> LocalSelection:
    """Compiles a query's selection. NeedsSpark for expressions that Python does not compute; SqlError for errors."""
    relation = query.relation
    if not isinstance(relation, NamedRelation) or query.window is not None or query.having is not None:
        raise NeedsSpark
    if query.group_by or query.partition_by:
        raise NeedsSpark
    scope = rows.scope(relation.alias, with_coordinates=with_coordinates)
    selected: list[tuple[str, SqlType, Compute]] = []
    overs: list[OverCall] = []
    for selected_expression in query.select:
        match selected_expression:
            case SelectStar(struct=None):
                selected += [(name, scope.columns[name], _column(name)) for name in _star(rows.source)]
            case SelectExpression():
                tree, calls = overs_in(selected_expression.expression, scope, len(overs))
                if calls and (query.emit is not None or not rows.source.is_table):
                    raise SqlError(OVER_REFUSAL, position_of(tree), OVER_HINT)
                overs += calls
                computed = scope_with(scope, calls).compiled(tree)
                plain_name = None if calls else computed.name
                name = selected_expression.alias or plain_name or f"KSQL_COL_{len(selected)}"
                selected.append((name, computed.type, computed.of))
            case _:
                raise NeedsSpark
    names = [name for name, _, _ in selected]
    if len(set(names)) < len(names):
        raise NeedsSpark  # the analysis reports which
    keys = _keys_of_pulled(query, rows.source)
    return LocalSelection(
        tuple(AnswerColumn(name=name, type=str(kind), is_key=name in keys) for name, kind, _ in selected),
        (lambda row: True) if query.where is None else scope.condition(query.where),
        tuple((of, kind) for _, kind, of in selected),
        tuple(overs),
    )


def _keys_of_pulled(query: Query, source: Source) -> set[str]:
    """Returns the names that a header marks as keys: only keys of a pull query over a table have one, as in ksqlDB."""
    if query.emit is not None or not source.is_table:
        return set()
    bounds = () if source.window is None else ("WINDOWSTART", "WINDOWEND")
    return {*(column.name for column in source.key), *bounds}


def _column(name: str) -> Compute:
    return lambda row: row[name]


def _star(source: Source) -> list[str]:
    bounds = [] if source.window is None else ["WINDOWSTART", "WINDOWEND"]
    return [
        *(column.name for column in source.key),
        *bounds,
        *(column.name for column in source.value),
    ]
