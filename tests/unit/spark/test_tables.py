"""Options of a catalog's table travel with its columns."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructField, StructType

from odradek.model.errors import ConfigError
from odradek.spark.options.option_table import Use
from odradek.spark.source import OdradekDataSource
from odradek.spark.tables import comment_of, read_from_table, stored_options, written_to_table

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}
AS_CATALOG_SAYS = {
    "provider": "odradek",
    "owner": "root",
    **OPTIONS,
    **{f"option.{key}": value for key, value in OPTIONS.items()},
}


def table(**options: str) -> StructType:
    """The columns of a table with these options."""
    comment = comment_of(OPTIONS | options)
    return StructType([StructField("key", BinaryType(), True, {"comment": comment})])


def test_a_table_is_made_of_what_the_catalog_says() -> None:
    ddl = OdradekDataSource(AS_CATALOG_SAYS).schema()
    assert ddl.startswith("`key` BINARY COMMENT 'odradek: ")
    assert ddl.count("COMMENT") == 1
    assert "COMMENT" not in OdradekDataSource(OPTIONS).schema()


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["subscribe", "valueschema", "x"]), st.text()))
def test_options_come_back_as_they_were_given_and_need_no_escaping(options: dict[str, str]) -> None:
    comment = comment_of(options)
    assert not set(comment) & set("'\\\n")
    assert (
        stored_options(StructType([StructField("key", BinaryType(), True, {"comment": comment})])) == options
    )


def test_what_is_given_to_the_read_counts_more() -> None:
    options = read_from_table(
        {"startingoffsets": "latest"}, table(startingoffsets="earliest"), Use.STREAM_READ
    )
    assert options == OPTIONS | {"startingoffsets": "latest"}


def test_options_that_do_not_apply_to_this_use_are_left_out() -> None:
    schema = table(endingoffsets="latest", publishoffsets="g")
    assert "endingoffsets" not in read_from_table({}, schema, Use.STREAM_READ)
    assert "publishoffsets" not in read_from_table({}, schema, Use.BATCH_READ)


def test_a_table_of_one_topic_is_written_to_that_topic() -> None:
    write = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
    assert written_to_table({}, table(), Use.BATCH_WRITE) == write | {"topic": "t"}
    assert written_to_table({}, table(topic="u"), Use.BATCH_WRITE) == write | {"topic": "u"}
    assert written_to_table({}, table(subscribe="t,u"), Use.BATCH_WRITE) == write


def test_columns_of_a_dataframe_bring_no_options() -> None:
    plain = StructType([StructField("key", BinaryType(), True, {"comment": "the customer"})])
    assert stored_options(plain) == {}
    assert written_to_table({"a": "b"}, plain, Use.BATCH_WRITE) == {"a": "b"}


def test_a_table_made_with_a_list_of_columns_says_how_to_make_it() -> None:
    with pytest.raises(ConfigError, match="without a list of columns"):
        read_from_table({}, StructType([StructField("key", BinaryType())]), Use.BATCH_READ)


@pytest.mark.parametrize("key", ["kafka.sasl.jaas.config", "kafka.ssl.keystore.password"])
def test_secrets_do_not_go_into_the_catalog(key: str) -> None:
    with pytest.raises(ConfigError, match="would be readable in the catalog"):
        comment_of(OPTIONS | {key: "x"})


def test_a_typing_error_is_found_when_the_table_is_made() -> None:
    with pytest.raises(ConfigError, match="did you mean subscribe"):
        OdradekDataSource({**AS_CATALOG_SAYS, "subscibe": "t"}).schema()
