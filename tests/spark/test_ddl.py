"""Texts of DDL mean to Odradek what they mean to Spark's own parser."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StructType
from tests.property.values.sql_types import SPARK_KINDS, SQL_KINDS, sql_types

from odradek.model.errors import ConfigError
from odradek.streams.plan.schemas import declared
from odradek.values.arrow_types import SPARK, arrow_type, sql_type
from odradek.values.ddl import DdlError, parsed_ddl, quoted, struct_type
from odradek.values.types import SqlType, struct_of_fields

COUNT = 300
ONLY_SPARKS = ("interval", "variant", "char(", "collate", "time(", "geometry", "geography", "decimal(0,0)")
NAMES = [
    "a",
    "A1",
    "_b",
    "1a",
    "1e",
    "select",
    "ARRAY",
    "interval",
    "time",
    "not",
    "comment",
    "map",
    "collate",
    "to",
]
QUOTED = ["`a,b`", "`c``d`", "`e f`", "`g:h`", "`<`", "`naïve`", "`'`", "`--x`"]
WRONG_NAMES = ["12", "1d", "1e5", "7L", "é", "a-b", "'a'", '"b"', "a.b", "$a", "3bd", "1e5f", "2s", "1ys"]
PLAIN = [
    *(
        "INT",
        "bigint",
        "String",
        "BOOLEAN",
        "byte",
        "SHORT",
        "tinyint",
        "smallint",
        "integer",
        "LONG",
        "float",
        "REAL",
    ),
    *(
        "double",
        "DATE",
        "binary",
        "void",
        "VARIANT",
        "timestamp",
        "TIMESTAMP_NTZ",
        "timestamp_ltz",
        "TIME",
        "time(9)",
    ),
    *(
        "decimal",
        "DEC(4)",
        "numeric ( 10 , 2 )",
        "DECIMAL(38,38)",
        "CHAR(3)",
        "varchar ( 7 )",
        "CHARACTER(0)",
    ),
    *(
        "interval",
        "INTERVAL DAY",
        "interval day to second",
        "INTERVAL HOUR TO MINUTE",
        "interval year to month",
    ),
    *(
        "TIMESTAMP WITHOUT TIME ZONE",
        "timestamp with local time zone",
        "time without time zone",
        "INTERVAL MONTH",
    ),
    *("STRING COLLATE UTF8_LCASE", "string collate unicode_ci", "STRUCT<>", "struct < >", "geometry(4326)"),
]
WRONG = [
    *(
        "BIGNT",
        "int(3)",
        "float(2)",
        "string(3)",
        "binary(1)",
        "ARRAY",
        "map",
        "struct",
        "DECIMAL(39,1)",
        "dec(3,4)",
    ),
    *("decimal(5,-1)", "decimal(1,1,1)", "char", "VARCHAR", "time(10)", "interval month to year", "é", ""),
    *(
        "interval second to day",
        "timestamp(3)",
        "TIMESTAMP_NTZ(3)",
        "bool",
        "any",
        "double precision",
        "DECIMAL()",
    ),
    *(
        "varchar(99999999999)",
        "timestamp without time",
        "geometry",
        "array<int not null>",
        "map<int>",
        "`INT`",
        "12",
    ),
]
TEXTS = ["'x'", "'a, b: <c>'", "'it''s'", "'it\\'s'", '"q"', "'a' 'b'", "r'raw\\'", "''", "'--'", "'/*'"]
WRONG_TEXTS = ["x", "'open", "`x`", "5", ""]
BLANKS = [" ", "  ", "\t", "\n", "\u00a0", " /* , */ ", " -- c,\n", " /* a /* b */ > */ "]


class Texts:
    """Makes texts: most are right, and some have one thing in them that is wrong."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _one(self, good: list[str], wrong: list[str]) -> str:
        return self._random.choice(wrong if self._chance(0.03) else good)

    def kind(self, depth: int = 0) -> str:
        blank = self._random.choice(["", "", " "])
        if depth > 3 or self._chance(0.65):
            return self._one(PLAIN, WRONG)
        if self._chance(0.4):
            return f"{self._one(['ARRAY', 'array'], ['list'])}{blank}<{self.kind(depth + 1)}>"
        if self._chance(0.4):
            return f"Map<{self.kind(depth + 1)},{blank}{self.kind(depth + 1)}>"
        return f"STRUCT{blank}<{self.fields(depth + 1, colons=0.5)}>"

    def field(self, depth: int, colons: float) -> str:
        name = self._one(NAMES + QUOTED, WRONG_NAMES)
        colon = self._random.choice([":", " :", ": "]) if self._chance(colons) else ""
        text = name + colon + ("" if colon else self._random.choice(BLANKS)) + self.kind(depth)
        if self._chance(0.15):
            text += self._one(
                [" NOT NULL", " not null", " ! NULL", "  Not  Null"], [" NULL", " NOT", " NOT NULLS"]
            )
        if self._chance(0.2):
            text += (
                f" {self._one(['COMMENT', 'comment'], ['REMARK', 'DEFAULT'])} {self._one(TEXTS, WRONG_TEXTS)}"
            )
        return text

    def fields(self, depth: int, colons: float) -> str:
        comma = self._random.choice([",", ", ", " , "])
        text = comma.join(self.field(depth, colons) for _ in range(self._random.randint(1, 3)))
        return text + self._one([""], [",", ">", ";", " x", " /* open", "/*+ h */", "."])

    def text(self) -> str:
        colons = self._random.choice([0, 0, 1, 0.5])
        return self.kind() if self._chance(0.25) else self.fields(0, colons)


def texts() -> Iterator[str]:
    made = Texts(71)
    yield from (made.text() for _ in range(COUNT))
    yield from (
        f"{name}{colon} {kind}"
        for name in NAMES
        for colon in ("", ":")
        for kind in ("INT", "TIME", "ARRAY<INT>")
    )
    yield from (f"a {kind}" for kind in WRONG)
    yield from (f"{name} INT" for name in WRONG_NAMES)
    yield from WRONG


def spark_type(ddl: str) -> DataType | None:
    try:
        return DataType.fromDDL(ddl)
    except (PySparkException, Exception):  # noqa: BLE001 - Java's exceptions are of many kinds
        return None


def ours(text: str) -> str | None:
    """The text as Odradek hands it to Spark."""
    try:
        ddl = parsed_ddl(text)
    except DdlError:
        return None
    return ddl.kind if ddl.fields is None else ", ".join(field.ddl for field in ddl.fields)


def test_a_text_means_what_it_means_to_spark(spark: SparkSession) -> None:
    outcomes = {True: 0, False: 0}
    for text in texts():
        if not text.strip():
            continue  # Spark takes it for no fields
        wanted, handed_on = spark_type(text), ours(text)
        assert (wanted is None) == (handed_on is None), (text, wanted, handed_on)
        outcomes[wanted is not None] += 1
        if handed_on is not None:
            assert _json(spark_type(handed_on)) == _json(wanted), (text, handed_on)
        if wanted is not None:
            _check_type(text, wanted)
    assert min(outcomes.values()) > COUNT // 5, outcomes


def _check_type(text: str, wanted: DataType) -> None:
    """The type in our model is Spark's, or Spark has a part that the model does not have."""
    kind, shown = parsed_ddl(text).type, wanted.simpleString()
    if kind is None:
        assert any(part in shown for part in ONLY_SPARKS), text
    else:
        assert DataType.fromDDL(kind.ddl).simpleString() == shown, text


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(kinds=st.lists(sql_types((*SQL_KINDS, *SPARK_KINDS)), min_size=4, max_size=8))
def test_types_of_columns_are_types_of_spark_and_of_arrow(spark: SparkSession, kinds: list[SqlType]) -> None:
    struct = struct_of_fields([(f"a{index}", kind) for index, kind in enumerate(kinds)])
    of_spark = DataType.fromDDL(struct.ddl)
    assert isinstance(of_spark, StructType)
    of_arrow = to_arrow_schema(of_spark, timezone="UTC")
    ours = pa.schema(list(arrow_type(struct, SPARK)))
    assert ours.equals(of_arrow, check_metadata=True)
    assert str(ours) == str(of_arrow)  # the names of the fields within lists and maps, too
    assert sql_type(pa.struct(list(of_arrow))) == struct.stored
    assert from_arrow_type(arrow_type(struct, SPARK)) == of_spark


def _json(kind: DataType | None) -> Any:
    return None if kind is None else kind.json()


def test_every_keyword_of_spark_is_a_name(spark: SparkSession) -> None:
    words = [row.keyword for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()]
    assert len(words) > 300
    fields = ", ".join(f"{word} INT" for word in words)
    ddl = parsed_ddl(fields)
    assert ddl.fields is not None
    assert [field.name for field in ddl.fields] == words == DataType.fromDDL(fields).fieldNames()  # type: ignore[attr-defined]


def test_streams_and_options_hand_on_what_spark_reads(spark: SparkSession) -> None:
    """The names, types, nullability and comments, whichever way a schema takes to Spark."""
    made = Texts(72)
    count = 0
    for _ in range(COUNT // 3):
        text = made.fields(0, 0.5)
        wanted = spark_type(text)
        if wanted is None:
            with pytest.raises(ConfigError, match="option valueSchema="):
                struct_type("valueSchema", text)
            with pytest.raises(ConfigError, match="value="):
                declared(text, "value")
            continue
        names = [name.lower() for name in wanted.fieldNames()]  # type: ignore[attr-defined]
        assert _json(spark_type(struct_type("valueSchema", text))) == _json(wanted), text
        if len(set(names)) == len(names):
            schema = declared(text, "value")
            assert _json(spark_type(schema.ddl)) == _json(wanted), text
            assert list(schema.names) == wanted.fieldNames()  # type: ignore[attr-defined]
            count += 1
    assert count > COUNT // 10


def test_a_name_in_quotes_comes_back() -> None:
    for name in ("a", "a`b", "``", "x, y", "'"):
        ((back, *_),) = parsed_ddl(f"{quoted(name)} INT").fields or ()
        assert back == name
