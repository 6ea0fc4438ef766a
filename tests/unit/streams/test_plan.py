"""What is refused or named before anything runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from odradek.model.errors import ConfigError
from odradek.streams import Streams
from odradek.streams.plan.schemas import declared
from odradek.streams.plan.windows import milliseconds
from odradek.streams.translation.translator import repartitions_with_null_keys


@pytest.mark.parametrize(
    ("text", "role", "names", "bare"),
    [
        ("BIGINT", "value", ("value",), True),
        ("DECIMAL(10, 2)", "value", ("value",), True),
        ("STRUCT<a: INT, b: INT>", "value", ("value",), True),
        ("name STRING", "value", ("name",), False),
        ("name STRING", "key", ("name",), True),
        ("a INT, b MAP<STRING, INT>, `c d` STRING", "value", ("a", "b", "c d"), False),
        ("item: STRING, amount :DOUBLE", "value", ("item", "amount"), False),
        ("`a,b` INT, `c``d` INT", "value", ("a,b", "c`d"), False),
        ("a INT COMMENT 'one, two', b STRING NOT NULL", "value", ("a", "b"), False),
        ("INTERVAL DAY", "value", ("value",), True),
    ],
)
def test_a_schema_is_a_type_or_fields(text: str, role: str, names: tuple[str, ...], bare: bool) -> None:
    schema = declared(text, role)
    assert (schema.names, schema.bare) == (names, bare)


@pytest.mark.parametrize("text", ["", "a INT,", "a INT, A STRING", "__a INT, b INT"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="value="):
        declared(text, "value")


@pytest.mark.parametrize(
    ("length", "expected"),
    [("5 minutes", 300_000), ("1 hour", 3_600_000), ("10ms", None), (250, 250), ("x", None)],
)
def test_lengths_of_time(length: str | int, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError, match="length of time"):
            milliseconds(length, "within")
    else:
        assert milliseconds(length, "within") == expected


def test_names_are_numbered_or_given_and_stand_for_one_operator() -> None:
    app = Streams("names")
    orders = app.stream("orders", key="STRING", value="BIGINT")
    orders.filter("value > 1").group_by_key().count(name="how-many").to("counts")
    assert app.describe().splitlines() == [
        "names: 1 output, 1 task",
        "sub-topology 0",
        "   stream-1: TopicSource (topic orders, key STRING, value BIGINT)",
        "   filter-1: Filtered <- stream-1 (value > 1)",
        " * how-many: Aggregated <- filter-1 (count(*) AS value, emit latest)",
        "   to-stream-1: AsStream <- how-many",
        "   to-1: TopicSink <- to-stream-1 (topic counts)",
    ]
    with pytest.raises(ConfigError, match="how-many"):
        orders.filter("true", name="how-many")


def test_writing_a_program_does_not_import_spark() -> None:
    program = (
        "import sys; from odradek.streams import Streams; a = Streams('a');"
        "a.stream('t', value='STRING').group_by('value').count().to('u'); a.describe();"
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_records_without_a_key_pass_all_repartitions_on_the_way_to_a_join_that_can_use_them() -> None:
    app = Streams("null-keys")
    orders = app.stream("orders", key="STRING", value="BIGINT")
    users = app.table("users", key="STRING", value="name STRING")
    first = orders.repartition(name="first").filter("value > 1").repartition(name="second")
    first.join(users, how="left").to("named")
    orders.repartition(name="third").join(users, prefix="r_").to("known")
    assert {operator.name for operator in repartitions_with_null_keys(app.program.ends)} == {
        "first",
        "second",
    }


def test_a_column_of_a_strange_name_is_in_the_ddl_as_it_is() -> None:
    schema = declared("`a``b`: INT NOT NULL COMMENT 'c, d', e STRING -- the last", "value")
    assert schema.ddl == "`a``b` INT NOT NULL COMMENT 'c, d', `e` STRING"
    assert schema.text == "a`b INT NOT NULL COMMENT 'c, d', e STRING"
