"""Tests that share something dear are one unit of work; long units begin first."""

from __future__ import annotations

import pytest
from tests.scheduling import rank_of, unit_of


@pytest.mark.parametrize(
    ("node_id", "unit"),
    [
        ("tests/spark/test_write.py::test_a_row[1::2]", "Spark"),
        ("tests/spark/streams/test_streams_running.py::test_avro_is_read", "streams on Spark"),
        ("tests/streams/oracle/test_programs.py::test_a_recorded_program[3 a::b]", "streams on Spark"),
        ("tests/streams/oracle/test_recording.py::test_a_seed[3]", "tests/streams/oracle/test_recording.py"),
        ("tests/unit/net/test_peers.py::TestPeers::test_one", "tests/unit/net/test_peers.py"),
        (
            "tests/hostile/test_attacks.py::test_no_one[a, 3]",
            "tests/hostile/test_attacks.py::test_no_one[a, 3]",
        ),
    ],
)
def test_a_unit_is_a_file_a_test_or_what_shares_a_session(node_id: str, unit: str) -> None:
    assert unit_of(node_id) == unit


def test_long_units_begin_first() -> None:
    ids = ["tests/unit/a.py::t", "tests/simulation/a.py::t", "tests/spark/a.py::t", "tests/hostile/a.py::t"]
    assert sorted(ids, key=rank_of) == [ids[2], ids[3], ids[1], ids[0]]
