"""The text files beside the logs, and the names of files."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.model.ids import TopicPartition
from odradek.storage.files import checkpoints, naming
from odradek.storage.files.checkpoints import BadCheckpointError
from odradek.storage.files.leader_epochs import EpochStart

OFFSETS = {TopicPartition("b.c", 10): 7, TopicPartition("a", 0): 2**63 - 1, TopicPartition("b.c", 9): 0}


def test_offsets_are_written_in_kafkas_format_and_a_fixed_order() -> None:
    data = checkpoints.format_offsets(OFFSETS)
    assert data == b"0\n3\na 0 9223372036854775807\nb.c 9 0\nb.c 10 7\n"
    assert checkpoints.parse_offsets(data) == OFFSETS
    assert checkpoints.parse_offsets(checkpoints.format_offsets({})) == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"0\n1\n",
        b"1\n0\n",
        b"0\n1\na 0 1",
        b"0\n2\na 0 1\n",
        b"0\n0\na 0 1\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na x 1\n",
        b"0\n1\na 0 9223372036854775808\n",
        b"0\n1\na 0 \xff\n",
        "0\n1\na 0 ٣\n".encode(),
        b"-0\n0\n",
    ],
)
def test_a_damaged_checkpoint_is_refused_as_a_whole(data: bytes) -> None:
    with pytest.raises(BadCheckpointError):
        checkpoints.parse_offsets(data)


def test_epochs_ascend_in_both_columns() -> None:
    entries = [EpochStart(0, 0), EpochStart(2, 5)]
    assert checkpoints.format_epochs(entries) == b"0\n2\n0 0\n2 5\n"
    assert checkpoints.parse_epochs(b"0\n2\n0 0\n2 5\n") == entries
    for data in (b"0\n2\n2 0\n0 5\n", b"0\n2\n0 5\n2 5\n", b"0\n2\n0 5\n2 4\n"):
        with pytest.raises(BadCheckpointError):
            checkpoints.parse_epochs(data)


def test_topic_ids_are_in_kafkas_base64() -> None:
    topic_id = UUID("0189d2b7-5f8a-7c3e-8000-fbffffffffff")
    data = checkpoints.format_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AYnSt1-KfD6AAPv______w"
    assert checkpoints.parse_partition_metadata(data) == topic_id
    for damaged in (
        b"",
        b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: A",
        b"\xff",
    ):
        with pytest.raises(BadCheckpointError):
            checkpoints.parse_partition_metadata(damaged)


def test_properties_skip_comments() -> None:
    assert checkpoints.parse_properties(b"#\n#Mon\nversion=1\n cluster.id = a=b\n\n") == {
        "version": "1",
        "cluster.id": "a=b",
    }


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000042.log", (42, ".log", "")),
        ("00000000000000000042.log.deleted", (42, ".log", ".deleted")),
        ("00000000000000000042.log.123.cut", (42, ".log", ".123.cut")),
        ("00000000000000000042.timeindex.swap", (42, ".timeindex", ".swap")),
        ("42.log", None),
        ("00000000000000000042", None),
        ("0000000000000000004x.log", None),
        ("leader-epoch-checkpoint", None),
    ],
)
def test_names_of_offset_files(name: str, parsed: tuple[int, str, str] | None) -> None:
    assert naming.parse_offset_file(name) == parsed


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("flights-0", TopicPartition("flights", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("-1-0", TopicPartition("-1", 0)),
        ("flights", None),
        ("flights-01", None),
        ("flights-", None),
        ("flights-0.0a1b-delete", None),
        ("flights-0.0a1b-stray", None),
    ],
)
def test_names_of_partition_directories(name: str, parsed: TopicPartition | None) -> None:
    assert naming.parse_partition_directory(name) == parsed


def test_the_directory_of_a_deleted_partition_has_a_legal_name_and_is_no_partition() -> None:
    name = naming.retired_directory(TopicPartition("t" * 249, 12345), UUID(int=3), naming.DELETED_DIRECTORY)
    assert len(name) == 255
    assert name.endswith("-delete")
    assert naming.parse_partition_directory(name) is None
