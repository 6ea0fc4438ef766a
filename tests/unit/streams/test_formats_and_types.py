"""A format that cannot hold a type is refused when the program is written: for every format, type and place of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from odradek.model.errors import ConfigError
from odradek.streams import Processor, Stream, Streams, Table
from odradek.streams.plan.schemas import FORMATS

SIMPLE: Final = (
    *(
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(5, 2)",
        "STRING",
        "BINARY",
    ),
    *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
)
SPARK_ONLY: Final = ("VARCHAR(7)", "CHAR(3)", "VARIANT", "INTERVAL DAY TO SECOND", "INTERVAL YEAR TO MONTH")
NESTED: Final = tuple(
    shape.format(kind)
    for shape in ("ARRAY<{}>", "MAP<STRING, {}>", "STRUCT<`a` {}>", "ARRAY<ARRAY<{}>>")
    for kind in ("INT", "STRING", "BINARY")
)
HELD_BY_KAFKA: Final = ("SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY")


def is_held(form: str, kind: str) -> bool:
    if form == "kafka":
        return kind in HELD_BY_KAFKA
    return form == "json" or kind not in (*NESTED, "BINARY", "VARIANT")


def is_read(form: str, kind: str) -> bool:
    return is_held(form, kind) and (form != "csv" or kind not in ("VARCHAR(7)", "CHAR(3)"))


def outcome(write: Callable[[], Any]) -> str:
    """Returns the error, or nothing."""
    try:
        write()
    except ConfigError as error:
        return str(error)
    return ""


class Echo(Processor):
    def process(self, record: Any, state: Any, timers: Any) -> None: ...


PASSED_ON: Final[dict[str, Callable[[Stream], Stream | Table]]] = {
    "itself": lambda stream: stream,
    "filter": lambda stream: stream.filter("true"),
    "peek": lambda stream: stream.peek(print),
    "merge": lambda stream: stream.merge(stream.filter("false")),
    "repartition": lambda stream: stream.repartition(),
    "a new time": lambda stream: stream.with_timestamp("0"),
    "a table": lambda stream: stream.to_table(),
    "a filtered table": lambda stream: stream.to_table().filter("true").to_stream(),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", [*SIMPLE, *SPARK_ONLY, *NESTED])
@pytest.mark.parametrize("role", ["key", "value"])
def test_a_topic_that_is_read_and_one_that_is_written_refuse_the_same_types(
    form: str, kind: str, role: str
) -> None:
    for declare in ("stream", "table", "global_table"):
        source = getattr(Streams("types"), declare)
        refused = outcome(lambda source=source: source("a", **{role: kind, f"{role}_format": form}))  # type: ignore[misc]
        assert (refused == "") == is_read(form, kind), refused
    for operators in PASSED_ON.values():
        passed = operators(Streams("types").stream("a", **{role: kind}))  # type: ignore[arg-type]
        refused = outcome(lambda passed=passed: passed.to("b", **{f"{role}_format": form}))  # type: ignore[misc]
        assert (refused == "") == is_held(form, kind), refused
        if refused:
            assert refused.startswith(f"to: {role}_format={form!r} holds ")
            assert refused.endswith(f": write {role}_format='json'")
            assert "\n" not in refused


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        *(("json", kind) for kind in ("TIME(6)", "VOID", "MAP<INT, STRING>", "ARRAY<MAP<DATE, INT>>")),
        *(("csv", kind) for kind in ("VARCHAR(7)", "CHAR(3)")),
    ],
)
def test_what_spark_does_not_read_is_refused_and_can_be_written(form: str, kind: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"value_format='{form}' reads no .* declare it as STRING, and CAST it"
    ):
        Streams("types").stream("a", value=kind, value_format=form)
    Streams("types").stream("a", key="STRING", value="INT").group_by_key().process(Echo(), schema=kind).to(
        "b"
    )


def test_several_columns_are_no_bare_value() -> None:
    fields = "a INT, b INT"
    message = "value_format='kafka' is for one bare value; value has a, b: write value_format='json'"
    with pytest.raises(ConfigError, match=f"^{message}$"):
        Streams("types").stream("a", value=fields, value_format="kafka")
    with pytest.raises(ConfigError, match=f"^to: {message}$"):
        Streams("types").stream("a", value=fields).to("b", value_format="kafka")
    with pytest.raises(ConfigError, match="value has a: write"):
        Streams("types").stream("a", value="a INT", value_format="kafka")
    Streams("types").stream("a", key="a INT", key_format="kafka").to("b", key_format="kafka")


@pytest.mark.parametrize(
    "add",
    [
        lambda stream: stream.group_by_key().aggregate(list, lambda k, v, a: a, schema="ARRAY<INT>"),
        lambda stream: stream.group_by_key().process(Echo(), schema="ARRAY<INT>"),
        lambda stream: stream.group_by_key().process(Echo(), outputs={"x": "ARRAY<INT>", "y": "INT"})["x"],
    ],
    ids=["aggregate", "process", "an output of process"],
)
def test_a_schema_that_an_operator_is_given_counts(add: Callable[[Stream], Stream | Table]) -> None:
    made = add(Streams("types").stream("a", key="BOOLEAN", value="INT"))
    with pytest.raises(ConfigError, match=r"to: value_format='kafka' holds .* not ARRAY<INT>"):
        made.to("b", value_format="kafka")
    with pytest.raises(ConfigError, match=r"to: key_format='kafka' holds .* not BOOLEAN"):
        made.to("b", key_format="kafka")
    made.to("b")


def test_what_only_spark_knows_is_left_to_spark() -> None:
    stream = Streams("types").stream("a", key="BOOLEAN", value="a INT, b ARRAY<INT>")
    stream.select("a AS value").to("b", value_format="kafka")
    stream.select_key("a").to("c", key_format="kafka", value_format="json")
    stream.group_by("a").count().to("d", key_format="kafka", value_format="json")
