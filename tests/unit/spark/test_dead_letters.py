"""What cannot be decoded is kept as it was, with the reason; and a row with a dead letter becomes that record."""

from __future__ import annotations

import json
import math
from collections import namedtuple
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    Row,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    VariantVal,
)
from tests.unit.spark import one_by_one
from tests.unit.spark.one_by_one import OutgoingRecord

from odradek.dead_letters.headers import Origin
from odradek.dead_letters.letter import read_letter
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.records.arrow import SCHEMA
from odradek.spark.dead_letters import letters
from odradek.spark.dead_letters.guarded import GuardedCall
from odradek.spark.dead_letters.letters import MicroBatch
from odradek.spark.dead_letters.mismatch import SCHEMA_MISMATCH, is_plainly_wrong, why_not
from odradek.spark.options.option_table import Decoding, Use
from odradek.spark.options.options import read_options, write_options
from odradek.spark.reading.decode import _parse_all, decode_json, to_columns
from odradek.spark.reading.schema import arrow_schema
from odradek.spark.rows.columns import DEAD_LETTER, DEAD_LETTER_FIELDS
from odradek.spark.rows.result_types import ResultType, with_dicts
from odradek.spark.writing.outgoing import row_format

HERE = TopicPartition("orders", 3)
SERVERS = {"kafka.bootstrap.servers": "h:1"}
KIND = pa.struct(
    [
        ("id", pa.int32()),
        ("amount", pa.float64()),
        ("item", pa.string()),
        ("paid", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("of", pa.struct([("a", pa.int64())])),
    ]
)


def records(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    count = len(values)
    headers = [[{"key": "n", "value": b"%d" % row}, {"key": "n", "value": None}] for row in range(count)]
    return pa.record_batch(
        {
            "offset": pa.array(range(100, 100 + count), pa.int64()),
            "timestamp": pa.array([1_357_034_400_123] * count, pa.int64()),
            "timestamp_type": pa.array([0] * count, pa.int32()),
            "key": pa.array(keys or [None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, SCHEMA.field("headers").type),
        }
    )


def spark_schema(ddl_columns: dict[str, Any]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in ddl_columns.items()])


def read_rows(batch: pa.RecordBatch, schema: StructType, **options: str) -> pa.RecordBatch:
    """What a task gives Spark; the schema as the JVM parses it from the DDL."""
    checked = read_options({**SERVERS, "subscribe": "orders", **options}, Use.READ).projection
    return to_columns(batch, HERE, arrow_schema(schema), checked)


@pytest.fixture
def dead_letter_type() -> Any:
    """The column's type without a JVM to parse its DDL."""
    headers = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
    kinds: dict[str, Any] = {
        "STRING": StringType(),
        "INT": IntegerType(),
        "BIGINT": LongType(),
        "BINARY": BinaryType(),
        "TIMESTAMP_LTZ": TimestampType(),
    }
    return spark_schema({name: kinds.get(ddl, headers) for name, ddl in DEAD_LETTER_FIELDS.items()})


@pytest.fixture
def orders_schema(dead_letter_type: Any) -> StructType:
    value = StructType([StructField("item", StringType()), StructField("amount", DoubleType())])
    return spark_schema({"value": value, DEAD_LETTER: dead_letter_type})


def test_bad_values_are_dead_letters_and_their_neighbours_are_not(orders_schema: StructType) -> None:
    values = [b'{"item":"a","amount":1}', b"{broken", None, b'{"item":1}', b"null", b'{"item":"b"}', b"\xff"]
    batch = read_rows(
        records(values),
        orders_schema,
        columns="value",
        valueDecode="json",
        valueSchema="item STRING, amount DOUBLE",
        decodeErrors="dead-letter",
    )
    assert batch["value"].to_pylist() == [
        {"item": "a", "amount": 1.0},
        None,
        None,
        None,
        None,
        {"item": "b", "amount": None},
        None,
    ]
    answers = batch[DEAD_LETTER].to_pylist()
    assert [row for row, letter in enumerate(answers) if letter is not None] == [1, 3, 6]
    assert [letter["value"] for letter in answers if letter] == [b"{broken", b'{"item":1}', b"\xff"]
    assert answers[3]["headers"] == [{"key": "n", "value": b"3"}, {"key": "n", "value": None}]
    assert (answers[3]["topic"], answers[3]["partition"], answers[3]["offset"]) == ("orders", 3, 103)
    assert (answers[3]["stage"], answers[3]["exception"]) == ("value", SCHEMA_MISMATCH)
    assert answers[3]["message"] == "field item is 1, not a string"
    assert answers[1]["exception"] == "json.decoder.JSONDecodeError"
    assert answers[6]["exception"] == "UnicodeDecodeError"


def test_a_batch_without_bad_values_has_an_empty_column(orders_schema: StructType) -> None:
    batch = read_rows(
        records([b"{}", b"{}"]),
        orders_schema,
        columns="value",
        valueDecode="json",
        valueSchema="item STRING, amount DOUBLE",
        decodeErrors="dead-letter",
    )
    assert batch[DEAD_LETTER].null_count == 2


def test_of_key_and_value_the_first_failure_counts(dead_letter_type: Any) -> None:
    schema = spark_schema({"key": StringType(), "value": StringType(), DEAD_LETTER: dead_letter_type})
    batch = read_rows(
        records([b"\xff", b"\xff"], [b"\xfe", b"k"]),
        schema,
        columns="key,value",
        keyDecode="utf8",
        valueDecode="utf8",
        decodeErrors="dead-letter",
    )
    assert [entry["stage"] for entry in batch[DEAD_LETTER].to_pylist()] == ["key", "value"]


def test_dead_letters_are_the_last_column_whatever_is_chosen() -> None:
    options = {**SERVERS, "subscribe": "t", "valueDecode": "utf8", "decodeErrors": "dead-letter"}
    columns = read_options({**options, "includeHeaders": "true"}, Use.READ).projection.columns
    assert columns[-2:] == ("headers", DEAD_LETTER)
    assert read_options({**options, "columns": "value"}, Use.READ).projection.columns == (
        "value",
        DEAD_LETTER,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decodeErrors": "dead-letter"}, "set valueDecode or keyDecode"),
        ({"decodeErrors": "deadletter", "valueDecode": "utf8"}, "fail, null, dead-letter"),
        ({"columns": "value,deadLetter"}, "there is no column 'deadLetter'"),
        ({"columns": "value", "includeRecord": "true"}, "leaves record out"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options({**SERVERS, "subscribe": "t", **options}, Use.READ)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"[1]", "the value is [1], not one JSON object"),
        (b'{"id": 1.5}', "field id is 1.5, not an INT"),
        (b'{"id": 3000000000}', "field id is 3000000000, not an INT"),
        (b'{"amount": true}', "field amount is true, not a DOUBLE"),
        (b'{"amount": "two"}', 'field amount is "two", not a DOUBLE'),
        (b'{"item": 7}', "field item is 7, not a string"),
        (b'{"paid": "yes"}', 'field paid is "yes", not a boolean'),
        (b'{"at": 5}', "field at is 5, not a timestamp (ISO 8601)"),
        (b'{"tags": "a"}', 'field tags is "a", not an array'),
        (b'{"tags": ["a", 1]}', "field tags[1] is 1, not a string"),
        (b'{"of": 1}', "field of is 1, not an object of the declared fields"),
        (b'{"of": {"a": "x"}}', 'field of.a is "x", not a BIGINT'),
    ],
)
def test_the_reason_names_the_field(value: bytes, message: str) -> None:
    assert decode_json(pa.array([value]), KIND).null_count == 1  # or there would be nothing to explain
    assert why_not(value, Decoding.JSON, KIND).message == message


SCALARS = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=3)
DOCUMENTS = st.dictionaries(
    st.sampled_from([field.name for field in KIND] + ["other"]),
    SCALARS
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["2013-01-01T00:00:00Z", "2013-01-01", 1.0, 1e3, -0.0])
    | st.lists(SCALARS, max_size=2)
    | st.dictionaries(st.sampled_from(["a", "b"]), SCALARS, max_size=2),
    max_size=4,
)


@given(DOCUMENTS | st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2)))
@settings(max_examples=300, deadline=None)
def test_what_is_plainly_wrong_is_never_what_arrow_takes(document: Any) -> None:
    value = json.dumps(document).encode()
    if is_plainly_wrong(value, KIND):
        assert _parse_all([value], KIND) is None


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_there_is_a_reason_for_anything(value: bytes) -> None:
    reason = why_not(value, Decoding.JSON, KIND)
    assert reason.exception
    assert reason.message


def test_very_deep_json_has_a_reason() -> None:
    assert why_not(b"[" * 100_000, Decoding.JSON, KIND).exception


def sent(batch: pa.RecordBatch, schema: StructType) -> list[OutgoingRecord]:
    layout = row_format(schema, "out", "orders.dlq")
    return one_by_one.sent(batch, layout)


def test_a_row_with_a_dead_letter_becomes_the_record_that_it_was(
    dead_letter_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "current_micro_batch", lambda: MicroBatch(query="q-1", batch=5))
    schema = spark_schema({"value": StringType(), DEAD_LETTER: dead_letter_type})
    rows = read_rows(
        records([b"good", b"\xff\x00", b"too"], [None, b"\x00k", None]),
        schema,
        columns="value",
        valueDecode="utf8",
        decodeErrors="dead-letter",
    )
    first, bad, last = sent(rows, schema)
    assert (first.topic, first.value, first.headers) == ("out", b"good", ())
    assert (last.topic, last.value) == ("out", b"too")
    assert (bad.topic, bad.key, bad.value, bad.timestamp_ms) == ("orders.dlq", b"\x00k", b"\xff\x00", None)

    class Landed:
        topic, partition, offset, timestamp_ms = "orders.dlq", 0, 0, 9
        key, value, headers = bad.key, bad.value, bad.headers

    letter = read_letter(Landed())
    assert letter.origin == Origin(topic="orders", partition=3, offset=101, timestamp_ms=1_357_034_400_123)
    assert (letter.by.query, letter.by.batch) == ("q-1", 5)
    assert letter.failure.exception == "UnicodeDecodeError"
    assert letter.own_headers == (("n", b"1"), ("n", None))


@pytest.mark.parametrize(
    ("columns", "dead_letter_topic", "message"),
    [
        (["value", DEAD_LETTER], None, "set the option deadLetterTopic"),
        (["value"], "dead", "keep it in every select"),
    ],
)
def test_a_column_without_its_topic_and_a_topic_without_its_column_are_refused(
    dead_letter_type: Any, columns: list[str], dead_letter_topic: str | None, message: str
) -> None:
    kinds = {"value": StringType(), DEAD_LETTER: dead_letter_type}
    with pytest.raises(ConfigError, match=message):
        row_format(spark_schema({name: kinds[name] for name in columns}), "out", dead_letter_topic)


def test_another_column_of_that_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be as a read"):
        row_format(spark_schema({"value": StringType(), DEAD_LETTER: StringType()}), "out", "dead")


def test_the_topic_of_dead_letters_must_have_a_topics_name() -> None:
    with pytest.raises(ConfigError, match="option deadLetterTopic"):
        write_options({**SERVERS, "topic": "t", "deadLetterTopic": "no/name"}, Use.STREAM_WRITE)


STRUCT = StructType(
    [
        StructField("id", IntegerType()),
        StructField("amount", DoubleType()),
        StructField("tags", ArrayType(StringType())),
        StructField("by", MapType(StringType(), LongType())),
    ]
)


def outcome(value: Any, kind: DataType) -> tuple[Any, ...]:
    """Result, stage, exception, message and stack trace of a guarded function that returns this."""
    returned: tuple[Any, ...] = GuardedCall(lambda: value, kind, "f")(False)
    return returned


ROW = {"id": 1, "amount": 2.0, "tags": ["a"], "by": {"k": 5}}
NAMED = namedtuple("NAMED", ["id", "amount", "tags", "by"])  # noqa: PYI024 - a test of them


@pytest.mark.parametrize(
    ("value", "kind", "taken"),
    [
        (None, DoubleType(), None),
        (2, DoubleType(), 2.0),
        (7, LongType(), 7),
        (7.0, LongType(), 7),
        ("a", StringType(), "a"),
        (bytearray(b"x"), BinaryType(), b"x"),
        (Decimal("1.005"), DecimalType(5, 2), Decimal("1.01")),
        (ROW, STRUCT, ROW),
        ({**ROW, "tags": ("a",)}, STRUCT, ROW),
        (tuple(ROW.values()), STRUCT, ROW),
        (Row(**dict(reversed(ROW.items()))), STRUCT, ROW),
        (NAMED(**ROW), STRUCT, ROW),
        ([{"k": 1}, None], ArrayType(MapType(StringType(), LongType())), [{"k": 1}, None]),
    ],
)
def test_a_result_that_fits_is_taken(value: Any, kind: DataType, taken: Any) -> None:
    assert outcome(value, kind) == (taken, None, None, None, None)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("2", DoubleType(), "2 is of the type str; DOUBLE holds numbers"),
        (True, IntegerType(), "True is of the type bool; INT holds whole numbers"),
        (0.5, LongType(), "0.5 is no whole number"),
        (math.nan, LongType(), "nan is no whole number"),
        (2**53 + 1, DoubleType(), "cannot be DOUBLE exactly"),
        (0.1, DecimalType(5, 2), "write Decimal"),
        (1 << 31, IntegerType(), "2147483648 is not between"),
        (5, StringType(), "5 is of the type int, not text"),
        ("ab", ArrayType(StringType()), "of the type str, not a list"),
        (datetime(2013, 7, 4), TimestampType(), "has no time zone"),
        ((1, 2), STRUCT, "it has 2 values, and the type has 4 fields"),
        ({**ROW, "more": 2}, STRUCT, "it has more, which the type does not have"),
        ({"id": 1, "amout": 2.0, "tags": [], "by": {}}, STRUCT, "did you mean amount"),
        ({**ROW, "tags": ["a", 5]}, STRUCT, "tags: [1]: 5 is of the type int"),
        ({**ROW, "by": {"k": "v"}}, STRUCT, "by: [k]: v is of the type str"),
        ({**ROW, "by": [1]}, STRUCT, "not a dict"),
    ],
)
def test_a_result_that_does_not_fit_says_where(value: Any, kind: DataType, message: str) -> None:
    made, stage, exception, said, _ = outcome(value, kind)
    assert (made, stage, exception) == (None, "f", "ValueError")
    assert message in said
    assert "\n" not in said


PARSED = VariantVal.parseJson('{"a": [1, "x"]}')
PARTS = {"value": PARSED.value, "metadata": PARSED.metadata}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, VariantType()),
        (PARSED, VariantType()),
        (PARTS, VariantType()),
        ([PARSED, None], ArrayType(VariantType())),
        ({"v": PARSED}, StructType().add("v", VariantType())),
        ({"k": PARSED}, MapType(StringType(), VariantType())),
    ],
)
def test_a_variant_is_a_result(value: Any, kind: DataType) -> None:
    """Spark takes it as it takes the result of a function of its own."""
    taken, *failure = outcome(value, kind)
    assert failure == [None] * 4
    schema = StructType().add("result", kind)
    table = LocalDataToArrowConversion.convert([(taken,)], schema, False)
    [row] = ArrowTableToRowsConversion.convert(table, schema)
    assert (row.result is None) == (value is None)
    assert repr(taken) == repr(PARSED if value is PARTS else value)
    fitted = ResultType(to_arrow_type(kind, timezone="UTC")).fitted(value)
    assert pa.array([fitted], to_arrow_type(kind, timezone="UTC"))[0].is_valid == (value is not None)


@pytest.mark.parametrize("value", ["{}", 5, {"a": 1}, [PARSED], {"value": "x", "metadata": b""}, VariantVal])
def test_what_is_no_variant_is_refused(value: Any) -> None:
    made, _, exception, said, _ = outcome(value, VariantType())
    assert (made, exception) == (None, "ValueError")
    assert "VARIANT holds VariantVal.parseJson" in said


_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.datetimes()
    | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(list(ROW)), inner, max_size=4)
    ),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(
    _VALUES,
    st.sampled_from([STRUCT, *(field.dataType for field in STRUCT), DecimalType(5, 2), TimestampType()]),
)
def test_a_guarded_function_and_a_streams_program_accept_the_same_results(value: Any, kind: DataType) -> None:
    arrow_type = to_arrow_type(kind, timezone="UTC")
    wanted: tuple[Any, ...]
    try:
        wanted = (with_dicts(ResultType(arrow_type).fitted(value), arrow_type), None, None)
    except ValueError as error:
        wanted = (None, "ValueError", str(error))
    made, _, exception, message, _ = outcome(value, kind)
    assert repr((made, exception, message)) == repr(wanted)
