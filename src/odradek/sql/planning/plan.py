"""Statements with a query as plans: what they write, where, in which formats, and the steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from odradek.config.options import GivenOptions
from odradek.sql.analysis.casts import converted
from odradek.sql.language.queries import Query
from odradek.sql.language.statements import (
    AlterQuery,
    CreateAsSelect,
    InsertIntoSelect,
    SelectStatement,
    SourceKind,
    Statement,
)
from odradek.sql.language.with_properties import WITH, With, checked_with
from odradek.sql.metastore.catalog import SqlCatalog, SqlColumn, SqlSource, TimestampColumn
from odradek.sql.planning.building import Built, build, reads_with_state
from odradek.sql.planning.query_planner import QueryPlan, QueryPlanner
from odradek.sql.planning.steps import (
    NOTHING,
    NamedColumn,
    OutputColumn,
    PlannedSteps,
    ProjectStep,
    ReadStep,
    Step,
)
from odradek.sql.planning.timestamps import milliseconds
from odradek.streams import Stream, Streams, Table
from odradek.values.errors import SqlError, nearest
from odradek.values.formats import FORMAT_NAMES, RecordFormat, check_map_keys, record_format
from odradek.values.formats.format_info import FormatInfo, WindowInfo
from odradek.values.types import is_castable_implicitly

_SINK_OPERATOR: Final = "to-1"
"""The name of the operator that writes to a query's sink: checkpoints and groups are named after it."""

_WRAPPED: Final = {True: ("KAFKA", "DELIMITED", "NONE"), False: ("PROTOBUF", "NONE")}
"""Formats that cannot write a single value so: in a record of one field, or bare."""
CLEANUP_POLICIES: Final = ("delete", "compact", "compact,delete")


def sink_id(program: str) -> str:
    """Returns the id under which the program of a query commits what it has read (`spark.options.sink_ids.group_of`)."""
    return f"{program}.{_SINK_OPERATOR}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a statement with a query. `sink` is the stream or table that it fills, None for a SELECT. `key` and
    `value` name the columns of the last frame."""

    query: QueryPlan
    key: tuple[OutputColumn, ...]
    value: tuple[OutputColumn, ...]
    sink: SqlSource | None
    limit: int | None = None

    @property
    def kind(self) -> str:
        return "table" if self.query.is_table else "stream"

    @property
    def columns(self) -> tuple[SqlColumn, ...]:
        """The columns of the result. In a SELECT, the key's columns are among the value's."""
        if self.sink is not None:
            return self.query.columns
        keys = [name for name in self.query.selected_key if name is not None]
        return tuple(
            SqlColumn(name=column.name, type=column.type, role="key" if column.name in keys else "value")
            for column in self.value
        )

    @property
    def window(self) -> WindowInfo | None:
        return self.query.window

    @property
    def sources(self) -> tuple[SqlSource, ...]:
        return self.query.sources

    @property
    def topic(self) -> str | None:
        return None if self.sink is None else self.sink.topic

    def sink_formats(self) -> tuple[RecordFormat, RecordFormat]:
        """Returns the formats in which records are written: key and value. The columns are the final frame's columns."""
        assert self.sink is not None
        return (
            record_format(self.sink.key_format, self.key, is_key=True, window=self.window),
            record_format(self.sink.value_format, self.value or (NOTHING,), is_key=False),
        )

    def build(self, app: Streams) -> Built:
        """Adds the operators to a program, and the sink if there is one. The stream or table before the sink."""
        built = build(self.query.step, app)
        if self.sink is None:
            return built
        key, value = self.sink_formats()
        if self.sink.timestamp is not None:
            stream = built.to_stream() if isinstance(built, Table) else built
            when = f"coalesce({self._timestamp(self.sink.timestamp)}, _timestamp)"
            stream.with_timestamp(when).to(
                self.sink.topic, key_format=key, value_format=value, name=_SINK_OPERATOR
            )
            return built
        built.to(self.sink.topic, key_format=key, value_format=value, name=_SINK_OPERATOR)
        return built

    def _timestamp(self, column: TimestampColumn) -> str:
        for output in (*self.key, *self.value):
            if output.name == column.name:
                return milliseconds(output.column, output.type, column.format)
        raise SqlError(
            f"The TIMESTAMP column set in the WITH clause does not exist in the schema: '{column.name}'"
        )


def plan(catalog: SqlCatalog, statement: Statement, planned: PlannedSteps | None = None) -> Plan:
    """Plans CREATE … AS SELECT, INSERT INTO … SELECT, or a SELECT that pushes. SqlError for what is wrong: `planned` then has
    the steps that are right.
    """
    planned = PlannedSteps() if planned is None else planned
    match statement:
        case CreateAsSelect():
            return _create_as(catalog, statement, planned)
        case AlterQuery():
            return _alter(catalog, statement, planned)
        case InsertIntoSelect():
            return _insert(catalog, statement, planned)
        case SelectStatement(query=query):
            return select_plan(catalog, query, planned)
    raise SqlError("this statement has no query", statement.position)


def planned_kind(catalog: SqlCatalog, query: Query, name: str) -> SourceKind:
    """Returns the kind of source that a persistent query makes. `name` is the source's name."""
    planned = QueryPlanner(catalog, query, PlannedSteps(), needs_key=True, sink=name).plan()
    return "table" if planned.is_table else "stream"


def select_plan(catalog: SqlCatalog, query: Query, steps: PlannedSteps | None = None) -> Plan:
    """Plans a push query: all of its columns are in the value, also the key's columns."""
    planned = QueryPlanner(catalog, query, steps or PlannedSteps(), needs_key=False).plan()
    return Plan(query=planned, key=planned.key, value=planned.value, sink=None, limit=query.limit)


def _create_as(catalog: SqlCatalog, statement: CreateAsSelect, steps: PlannedSteps) -> Plan:
    planned = _planned(catalog, statement, steps)
    return _filling(_sink(catalog, statement, planned), planned, statement)


def _alter(catalog: SqlCatalog, statement: AlterQuery, steps: PlannedSteps) -> Plan:
    """Formats and timestamp stay; so does the topic, unless it is rebuilt."""
    planned = _planned(catalog, statement, steps)
    known = catalog.source(statement.name, statement.position)
    topic = str(dict(statement.properties).get("KAFKA_TOPIC", known.topic))
    sink = replace(known, columns=planned.columns, window=planned.window, topic=topic)
    return _filling(sink, planned, statement)


def _planned(catalog: SqlCatalog, statement: CreateAsSelect | AlterQuery, steps: PlannedSteps) -> QueryPlan:
    if statement.query.limit is not None:
        raise SqlError("LIMIT is for SELECT only", statement.query.position)
    planned = QueryPlanner(catalog, statement.query, steps, needs_key=True, sink=statement.name).plan()
    if planned.is_table != (statement.kind == "table"):
        output_kind, asked = ("TABLE", "STREAM") if planned.is_table else ("STREAM", "TABLE")
        hint = f"Write CREATE {output_kind} {statement.name} AS …"
        if output_kind == "STREAM":
            hint += ", or GROUP BY"
        raise SqlError(
            f"Invalid result type. Your SELECT query produces a {output_kind}. Please use CREATE {output_kind} AS SELECT"
            f" statement instead of CREATE {asked}",
            statement.position,
            hint,
        )
    return planned


def _filling(sink: SqlSource, planned: QueryPlan, statement: Statement) -> Plan:
    _check_timestamp(sink)
    filled_plan = Plan(query=planned, key=planned.key, value=planned.value, sink=sink)
    try:
        for form in filled_plan.sink_formats():
            check_map_keys(form)
    except SqlError as error:
        raise error.at(statement.position) from None
    return filled_plan


def _sink(catalog: SqlCatalog, statement: CreateAsSelect, planned: QueryPlan) -> SqlSource:
    properties = checked_with(statement, WITH, With.SINK)
    first, has_key = planned.sources[0], bool(planned.key)
    key_default = (has_key and first.inherited_key_format) or first.key_format
    key_format, value_format = formats_of(
        properties,
        replace(key_default, schema_id=None, schema_name=None),
        replace(first.value_format, schema_id=None, schema_name=None, wrapped=True),
        statement,
        has_key=has_key,
    )
    check_wrapping(properties, value_format, len(planned.value), statement)
    timestamp, topic = None, properties.text("KAFKA_TOPIC")
    if (column := properties.text("TIMESTAMP")) is not None:
        timestamp = TimestampColumn(name=_column_name(column), format=properties.text("TIMESTAMP_FORMAT"))
    return SqlSource(
        name=statement.name,
        kind=statement.kind,
        columns=planned.columns,
        topic=statement.name if topic is None else topic,
        key_format=replace(key_format, registry=catalog.registry),
        value_format=replace(value_format, registry=catalog.registry),
        timestamp=timestamp,
        window=planned.window,
        partitions=properties.number_or_none("PARTITIONS"),
        replicas=properties.number_or_none("REPLICAS"),
        topic_settings=topic_settings(properties, statement),
        text=statement.text,
        bad=properties.text("BAD"),
        inherited_key_format=None if has_key else first.inherited_key_format,
    )


def _check_timestamp(sink: SqlSource) -> None:
    if sink.timestamp is None:
        return
    column = sink.column(sink.timestamp.name)
    if column is None:
        hint = nearest(sink.timestamp.name, [column.name for column in sink.columns])
        raise SqlError(
            f"The TIMESTAMP column set in the WITH clause does not exist in the schema: '{sink.timestamp.name}'",
            hint=hint,
        )
    milliseconds("x", column.type, sink.timestamp.format)


def _insert(catalog: SqlCatalog, statement: InsertIntoSelect, steps: PlannedSteps) -> Plan:
    sink = catalog.source(statement.target, statement.position)
    headers = next((column.name for column in sink.columns if column.role == "headers"), None)
    if headers is not None:
        raise SqlError(
            f"Cannot insert into {sink.name} because it has header columns: `{headers}`", statement.position
        )
    planned = QueryPlanner(catalog, statement.query, steps, needs_key=True, sink=sink.name).plan()
    if sink.is_table:
        raise SqlError(
            "INSERT INTO can only be used to insert into a stream. A table was given", statement.position
        )
    if planned.is_table:
        raise SqlError(
            "Incompatible data sink: INSERT INTO a stream needs a query that makes a stream",
            statement.position,
        )
    wanted, columns = sink.key + sink.value, planned.columns
    names_agree = [column.name for column in wanted] == [column.name for column in columns]
    fits = names_agree and all(
        is_castable_implicitly(column.type, target.type)
        for column, target in zip(columns, wanted, strict=True)
    )
    if not fits or len(sink.key) != len(planned.key):
        raise SqlError(
            f"Incompatible schema between results and sink. Result schema is {_listed(columns)}, but the sink schema is"
            f" {_listed(wanted)}",
            statement.query.position,
            "Select the columns of the sink, in their order, under their names.",
        )
    value = tuple(
        OutputColumn(output.name, output.column, target.type)
        for output, target in zip(planned.value, sink.value, strict=True)
    )
    step: Step = planned.step
    if any(old.type != new.type for old, new in zip(planned.value, value, strict=True)):
        texts = tuple(
            NamedColumn(old.column, converted(f"`{old.column}`", old.type, new.type))
            for old, new in zip(planned.value, value, strict=True)
        )
        step = ProjectStep(inputs=(step,), value=texts)
    key = tuple(OutputColumn(output.name, output.column, output.type) for output in planned.key)
    if any(output.type != target.type for output, target in zip(key, sink.key, strict=True)):
        raise SqlError("Incompatible schema: the types of the keys differ", statement.query.position)
    return Plan(query=replace(planned, step=step, value=value), key=key, value=value, sink=sink)


def _listed(columns: Iterable[SqlColumn]) -> str:
    return ", ".join(
        f"`{column.name}` {column.type}{' KEY' if column.role == 'key' else ''}" for column in columns
    )


# ---- WITH


def formats_of(
    properties: GivenOptions,
    key_default: FormatInfo,
    value_default: FormatInfo,
    statement: Statement,
    *,
    has_key: bool,
) -> tuple[FormatInfo, FormatInfo]:
    """Returns the formats of key and value: the ones in WITH, else the defaults."""
    both = properties.text("FORMAT")
    key_name, value_name = properties.text("KEY_FORMAT"), properties.text("VALUE_FORMAT")
    if both is not None and (key_name is not None or value_name is not None):
        raise SqlError(
            "Cannot supply both 'KEY_FORMAT' or 'VALUE_FORMAT' and 'FORMAT' properties", statement.position
        )
    if not has_key and key_name is not None and key_name.upper() != "NONE":
        raise SqlError(
            "Key format specified for stream without key columns", statement.position, "Leave KEY_FORMAT out."
        )
    key_name = both if key_name is None else key_name
    value_name = both if value_name is None else value_name
    key = key_default if key_name is None else FormatInfo(name=_format_name(key_name, statement))
    value = value_default if value_name is None else FormatInfo(name=_format_name(value_name, statement))
    if has_key and key.name == "NONE":
        if key_name is not None:
            raise SqlError("Key format NONE cannot be used with a key", statement.position)
        key = FormatInfo(name="KAFKA")
    if properties.is_given("WRAP_SINGLE_VALUE"):
        value = replace(value, wrapped=properties.flag("WRAP_SINGLE_VALUE"))
    return _with_details(key, properties, "KEY"), _with_details(value, properties, "VALUE")


def check_wrapping(properties: GivenOptions, value: FormatInfo, columns: int, statement: Statement) -> None:
    """Raises SqlError for WRAP_SINGLE_VALUE where the format, or the number of value columns, gives no choice."""
    if not properties.is_given("WRAP_SINGLE_VALUE"):
        return
    if value.name in _WRAPPED.get(value.wrapped, ()):
        raise SqlError(
            f"Format '{value.name}' does not support 'WRAP_SINGLE_VALUE' set to '{str(value.wrapped).lower()}'",
            statement.position,
            "Leave WRAP_SINGLE_VALUE out.",
        )
    if columns != 1:
        raise SqlError(
            "'WRAP_SINGLE_VALUE' is only valid for single-field value schemas",
            statement.position,
            f"There are {columns} value columns: leave it out.",
        )


def _with_details(info: FormatInfo, properties: GivenOptions, part: str) -> FormatInfo:
    """Returns the format with its delimiter, its schema, and how it writes null."""
    details: dict[str, Any] = {
        "delimiter": properties.text(f"{part}_DELIMITER"),
        "schema_name": properties.text(f"{part}_SCHEMA_FULL_NAME"),
        "schema_id": properties.number_or_none(f"{part}_SCHEMA_ID"),
        "nullable": properties.text(f"{part}_PROTOBUF_NULLABLE_REPRESENTATION"),
    }
    return replace(info, **{name: value for name, value in details.items() if value is not None})


def _format_name(written: str, statement: Statement) -> str:
    name = written.upper()
    if name not in FORMAT_NAMES:
        hint = nearest(name, FORMAT_NAMES) or f"There are {', '.join(FORMAT_NAMES)}."
        raise SqlError(f"Unknown format: {name}", statement.position, hint)
    return name


def topic_settings(properties: GivenOptions, statement: Statement) -> tuple[tuple[str, str], ...]:
    """Returns the topic's settings from RETENTION_MS and CLEANUP_POLICY. SqlError."""
    settings = []
    retention_ms, policies = properties.number_or_none("RETENTION_MS"), properties.text("CLEANUP_POLICY")
    if retention_ms is not None:
        settings.append(("retention.ms", str(retention_ms)))
    if policies is not None:
        policy = ",".join(sorted(word.strip().lower() for word in policies.split(",")))
        if policy not in CLEANUP_POLICIES:
            raise SqlError(
                f"CLEANUP_POLICY is one of {'; '.join(CLEANUP_POLICIES)}, not {policies!r}",
                statement.position,
            )
        settings.append(("cleanup.policy", policy))
    return tuple(settings)


def _column_name(written: str) -> str:
    return written.strip("`") if written.startswith("`") else written.upper()


def as_stream(built: Built) -> Stream:
    """Returns the updates of a table as records, for what shows them."""
    return built.to_stream() if isinstance(built, Table) else built


# ---- EXPLAIN


def explain(plan: Plan) -> str:
    """Explains a plan. `native` steps are plain Spark; `stateful` ones keep something of their keys, and have a changelog."""
    lines = _described(plan.query.step, 0)
    if plan.sink is not None:
        key, value = plan.sink.key_format.name, plan.sink.value_format.name
        lines.insert(0, f"write to topic {plan.sink.topic}, key {key}, value {value}")
        lines[1:] = [f"  {line}" for line in lines[1:]]
    return "\n".join(lines)


def explained_plan(catalog: SqlCatalog, statement: Statement) -> Plan:
    """Returns the plan of a statement that EXPLAIN names. SqlError as of `plan`: its hint names the accepted operators,
    too."""
    planned = PlannedSteps()
    try:
        return plan(catalog, statement, planned)
    except SqlError as error:
        if not planned.ends:
            raise
        lines = [line for end in planned.ends for line in _described(end, 1)]
        instead = "" if error.hint is None else f" {error.hint}"
        refused = f"refused: {planned.next}: {error.message.removesuffix('.')}.{instead}"
        raise SqlError(error.message, error.position, "\n".join([refused, *lines])) from None


def _described(step: Step, depth: int) -> list[str]:
    return list(_lines(step, depth, reads_with_state(step)))


def _lines(step: Step, depth: int, reads: list[ReadStep]) -> Iterator[str]:
    has_state = step.has_state or any(step is read for read in reads)
    yield f"{'  ' * depth}{'stateful' if has_state else 'native'}: {step.shown()}"
    for source in step.inputs:
        yield from _lines(source, depth + 1, reads)
