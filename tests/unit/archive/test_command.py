"""`odradek archive`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from odradek.archive.checks import topic_side
from odradek.archive.checks.topic_side import LogExtent
from odradek.archive.store.location import archive_location
from odradek.archive.tables.port import TableFormat
from odradek.cli.archive import archive as command
from odradek.cli.main import main
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange

from .conftest import ORDERS, ListedTopics, TestArchive, rows

OTHER = TopicPartition("orders", 1)


@pytest.fixture
def archive(tmp_path: Path) -> TestArchive:
    made = TestArchive(archive_location(str(tmp_path / "archive")), TableFormat.DELTA)
    made.add(0, 0, 5)
    made.add(1, 5, 8)
    return made


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> ListedTopics:
    """Two partitions; the second one was never archived."""
    listed_topics = ListedTopics(
        {ORDERS: LogExtent(start=0, end=12), OTHER: LogExtent(start=0, end=3)},
        {ORDERS: range(12), OTHER: range(3)},
    )
    monkeypatch.setattr(topic_side, "BrokerTopics", lambda *_: listed_topics)
    monkeypatch.setattr(command, "check_reachable", lambda *_: None)
    return listed_topics


def run(capsys: Any, *words: str) -> tuple[int, str, str]:
    code = main(["archive", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_status_is_a_table_with_a_line_below(archive: TestArchive, brokers: Any, capsys: Any) -> None:
    code, out, err = run(capsys, "status", archive.location.path)
    lines = [line.split() for line in out.splitlines()]
    size = sum(file.size_bytes for file in archive.table.files())
    assert code == 0
    assert lines[1:] == [
        ["orders", "0", "8", "12", "4", "2", str(size)],
        ["orders", "1", "0", "3", "3", "0", "0"],
    ]
    assert err.startswith("delta: 8 records in 2 files")


def test_status_for_machines(archive: TestArchive, brokers: Any, capsys: Any) -> None:
    _, out, _ = run(capsys, "status", archive.location.path, "--json")
    document = json.loads(out)
    assert (document["format"], document["records"], document["files"]) == ("delta", 8, 2)
    assert document["partitions"][1] == {
        "topic": "orders",
        "partition": 1,
        "archived_to": 0,
        "end_of_topic": 3,
        "behind": 3,
        "files": 0,
        "bytes": 0,
    }


def test_verify_says_that_all_is_well(archive: TestArchive, brokers: Any, capsys: Any) -> None:
    code, out, err = run(capsys, "verify", archive.location.path)
    assert code == 0
    assert out.splitlines()[1].split() == ["orders", "0", "0", "8", "8", "0", "0", "0", "0", "0"]
    assert err == "every record is there once: 8 rows\n"


def test_verify_fails_with_the_offsets_that_are_missing(
    archive: TestArchive, brokers: Any, capsys: Any
) -> None:
    archive.commit(archive.batch(2, [OffsetRange(partition=ORDERS, start=8, end=12)], rows(ORDERS, [8, 11])))
    code, out, err = run(capsys, "verify", archive.location.path)
    assert code == 1
    assert out.splitlines()[1].split()[4:7] == ["10", "0", "2"]
    assert err == f"odradek: {archive.location}: 2 records of orders-0 are missing: offsets 9-10\n"


def test_compact_expire_and_manifest(archive: TestArchive, capsys: Any) -> None:
    code, _, err = run(capsys, "compact", archive.location.path)
    assert (code, err.split(" (")[0]) == (0, "1 files")
    assert len(archive.table.files()) == 1
    assert run(capsys, "expire", archive.location.path, "--dry-run") == (0, "", "0 files would be removed\n")
    code, out, _ = run(capsys, "expire", archive.location.path, "--json")
    assert json.loads(out) == {"files": [], "versions": 0}
    code, out, _ = run(capsys, "manifest", archive.location.path, "--for", "athena")
    assert out == f"{archive.location}/_symlink_format_manifest\n"
    assert archive.offsets() == list(range(8))


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["status", "/nowhere/a"], 1, "there is no archive at /nowhere/a"),
        (["expire", "{location}", "--keep", "5m"], 1, "--keep is at least 1h"),
        (["compact", "{location}", "--file-bytes", "big"], 1, "--file-bytes is a number of bytes"),
        (["run", "{location}"], 2, "give --topic, or --pattern"),
        (["run", "{location}", "-t", "a", "--value", "json"], 1, "needs? .*schema"),
        (["run", "{location}", "-t", "a", "--every", "soon"], 1, "'soon' is no duration"),
        (["verify", "gs://lake/a"], 1, "a directory or s3://bucket/prefix"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    archive: TestArchive, brokers: Any, capsys: Any, words: list[str], code: int, line: str
) -> None:

    given = [word.format(location=archive.location.path) for word in words]
    exit_code, out, err = run(capsys, *given)
    assert (exit_code, out, err.count("\n")) == (code, "", 1)
    assert re.search(line, err)
