"""Archives in an S3-compatible store: a server that speaks S3's API over HTTP, started by the tests."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("moto", reason="moto is absent")
pytest.importorskip("obstore", reason="obstore is absent")

from pyarrow import fs

from odradek.archive.checks.verify import verify_archive
from odradek.archive.files.compaction import compact
from odradek.archive.files.file_lists import ListStyle, write_file_list
from odradek.archive.files.reading import FileReader
from odradek.archive.opening import format_at, open_archive
from odradek.archive.store.location import ArchiveLocation, archive_location
from odradek.archive.store.object_store import small_objects
from odradek.archive.store.values import ArchiveError, CommitConflict
from odradek.archive.tables.commit import Committed
from odradek.archive.tables.port import TableFormat
from odradek.runtime.real import SystemClock
from odradek.spark.reading.offsets import OffsetRange

from .conftest import ORDERS, TestArchive, rows

BUCKET = "lake"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The URL of a store with one bucket."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


@pytest.fixture
def location(
    endpoint: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> ArchiveLocation:
    """A prefix of the test's own; keys stand in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    name = request.node.name.replace("[", "-").replace("]", "")
    location = archive_location(f"s3://{BUCKET}/{name}/a b", endpoint=endpoint)
    parts = endpoint.removeprefix("http://")
    fs.S3FileSystem(
        endpoint_override=parts, scheme="http", region="us-east-1", allow_bucket_creation=True
    ).create_dir(BUCKET)
    return location


@pytest.fixture
def archive(location: ArchiveLocation, table_format: TableFormat) -> TestArchive:
    return TestArchive(location, table_format, ["bucket"])


def test_an_archive_in_a_store_is_like_any_other(archive: TestArchive, topics: Any) -> None:
    assert format_at(archive.location) is None
    assert [archive.add(0, 0, 6), archive.add(0, 0, 6), archive.add(1, 6, 9)] == [
        Committed.NOW,
        Committed.BEFORE,
        Committed.NOW,
    ]
    assert archive.rows() == rows(ORDERS, range(9)).to_pylist()
    (finding,) = verify_archive(open_archive(archive.location), topics(0, 9))
    assert finding.faults == []


def test_of_two_commits_after_the_same_version_one_is_a_conflict(archive: TestArchive) -> None:
    table = archive.table
    before = table.state()
    late = archive.batch(1, [OffsetRange(partition=ORDERS, start=0, end=5)], query="late")
    archive.add(0, 0, 5)
    with pytest.raises(CommitConflict):
        table.append(late, before)
    assert archive.offsets() == [0, 1, 2, 3, 4]


def test_compaction_expiry_and_lists(archive: TestArchive) -> None:
    for number in range(4):
        archive.add(number, number * 2, number * 2 + 2)
    archive.batch(9, [OffsetRange(partition=ORDERS, start=8, end=9)])
    before = archive.rows()
    assert compact(archive.table, 1 << 20).removed_count == 4
    table = archive.table
    expired = table.expire(SystemClock().wall_ms() + 60_000, dry_run=False)
    assert sum(name.endswith(".parquet") and "_delta_log" not in name for name in expired.files) == 5
    assert archive.rows() == before
    name = write_file_list(table, ListStyle.REDSHIFT)
    content = small_objects(archive.location).read(name)
    assert content is not None
    assert f"s3://{archive.location.path}".encode() in content


def test_a_batch_whose_files_are_gone_is_not_committed(archive: TestArchive) -> None:
    archive.add(0, 0, 3)
    late = archive.batch(1, [OffsetRange(partition=ORDERS, start=3, end=6)])
    archive.table.expire(SystemClock().wall_ms() + 60_000, dry_run=False)
    with pytest.raises(ArchiveError, match="expired before it was committed"):
        archive.commit(late)


def test_an_object_is_put_once(location: ArchiveLocation) -> None:
    objects = small_objects(location)
    assert objects.put_if_absent("x/one", b"1")
    assert not objects.put_if_absent("x/one", b"2")
    assert objects.put_if_absent("x/one", b"1"), "a put whose answer was lost is sent again"
    assert objects.read("x/one") == b"1"
    objects.put("x/one", b"3")
    objects.put("x/two", b"")
    assert objects.names("x") == ["one", "two"]
    assert objects.names("y") == []
    assert (objects.has("x/one"), objects.has("x/three"), objects.read("x/three")) == (True, False, None)
    objects.remove("x/one")
    objects.remove("x/one")
    assert objects.read("x/one") is None


def test_a_store_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    location = archive_location("s3://lake/nothing", endpoint="http://127.0.0.1:9")
    with pytest.raises(ArchiveError, match="s3://lake/nothing cannot be looked at"):
        format_at(location)


def test_a_reader_says_which_file_is_gone(archive: TestArchive) -> None:
    archive.add(0, 0, 3)
    table = archive.table
    (file,) = table.files()
    archive.location.file_system().delete_file(archive.location.within(file.path))
    with pytest.raises(ArchiveError, match=r"parquet no longer exists"):
        list(FileReader(location=archive.location, schema=table.schema).read(file))
