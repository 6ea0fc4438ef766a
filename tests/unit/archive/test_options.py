"""Options and places: what is understood, and what the refusal of the rest says."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.archive.options import (
    archive_read_options,
    archive_write_options,
)
from odradek.archive.store.location import archive_location
from odradek.archive.tables.port import TableFormat
from odradek.config.options import byte_count
from odradek.model.errors import ConfigError


def test_a_write_has_defaults() -> None:
    options = archive_write_options({"path": "/data/a"})
    assert (options.location.path, options.sink_id, options.file_bytes) == ("/data/a", "archive", 128 << 20)
    assert (options.table_format, options.partition_by, options.leaving_gaps) == (None, None, False)


def test_names_are_understood_in_any_case() -> None:
    given = {"PATH": "/a", "tableformat": "Parquet", "partitionby": "day, topic", "FILEBYTES": "4k"}
    options = archive_write_options({**given, "leavegaps": "TRUE", "checkpointlocation": "/c"})
    assert options.table_format is TableFormat.PARQUET
    assert options.partition_by == ("day", "topic")
    assert (options.file_bytes, options.leaving_gaps, options.checkpoint) == (4096, True, "/c")


def test_the_query_names_the_sink() -> None:
    assert archive_write_options({"path": "/a", "queryName": "orders"}).sink_id == "orders"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "the path of the archive is missing"),
        ({"path": "/a", "fileByte": "1"}, "did you mean fileBytes"),
        ({"path": "/a", "columns": "x"}, "option columns does not apply to writes"),
        ({"path": "/a", "tableFormat": "hudi"}, "one of delta, iceberg, parquet"),
        ({"path": "/a", "sinkId": "a b"}, "letters, digits"),
        ({"path": "/a", "fileBytes": "0"}, "number of bytes such as 128MiB"),
        ({"path": "/a", "leaveGaps": "yes"}, "true or false"),
        ({"path": "/a", "partitionBy": "a,a"}, "names a twice"),
    ],
)
def test_a_wrong_write_option_is_named(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        archive_write_options(options)


def test_a_read_may_choose_columns() -> None:
    assert archive_read_options({"path": "/a", "columns": "key,value"}).columns == ("key", "value")
    with pytest.raises(ConfigError, match="does not apply to reads"):
        archive_read_options({"path": "/a", "sinkId": "s"})


@pytest.mark.parametrize(
    ("text", "count"), [("1", 1), ("128MiB", 128 << 20), ("2 g", 2 << 30), ("64KiB", 65_536), ("5b", 5)]
)
def test_sizes(text: str, count: int) -> None:
    assert byte_count(text, "it") == count


@pytest.mark.parametrize(
    ("text", "path", "uri"),
    [
        ("/data/orders/", "/data/orders", "/data/orders"),
        ("file:///data/a%20b", "/data/a b", "/data/a b"),
        ("s3://lake/a/b/", "lake/a/b", "s3://lake/a/b"),
        ("s3a://lake/a", "lake/a", "s3://lake/a"),
    ],
)
def test_places(text: str, path: str, uri: str) -> None:
    location = archive_location(text, environment={})
    assert (location.path, location.uri, str(location)) == (path, uri, uri)


@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        ("s3://lake", {}, "name a bucket and a prefix"),
        ("gs://lake/a", {}, "a directory or s3://bucket/prefix, not gs://"),
        ("/data", {"endpoint": "http://x"}, "of use with s3:// only"),
        ("s3://lake/a", {"endpoint": "localhost:9000"}, "is no URL"),
        (" ", {}, "is empty"),
    ],
)
def test_a_place_that_cannot_be_is_refused(text: str, more: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        archive_location(text, environment={}, **more)


def test_every_library_gets_the_same_options_of_a_store() -> None:
    variables = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000/", "AWS_REGION": "eu-north-1"}
    location = archive_location("s3://lake/a", environment=variables)
    assert location.delta_options()["aws_endpoint"] == "http://127.0.0.1:9000"
    assert location.delta_options()["aws_allow_http"] == "true"
    assert location.obstore_options()["endpoint"] == "http://127.0.0.1:9000"
    assert location.iceberg_properties() == {
        "s3.region": "eu-north-1",
        "s3.endpoint": "http://127.0.0.1:9000",
    }
    assert archive_location("s3://lake/a", region="mars", environment=variables).region == "mars"


def test_no_key_is_ever_an_option() -> None:
    variables = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    location = archive_location("s3://lake/a", environment=variables)
    assert "secret" not in repr((location, location.delta_options(), location.obstore_options()))
