"""Directories of checkpoints: each query has one of its own, within the directory of the service."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.sql.queries.channel import StartQuery
from odradek.sql.queries.engine import SupervisedQuery
from odradek.sql.server.checkpoints import CheckpointRemoval, QueryCheckpoints

SERVICE = Path("/data/sql/default")
CHECKPOINTS = QueryCheckpoints(SERVICE)


@pytest.mark.parametrize("query_id", ["CSAS_TOTALS_7", "CTAS_a.b_7", "INSERTQUERY_12_2"])
def test_a_plain_id_is_the_name_of_the_directory(query_id: str) -> None:
    assert CHECKPOINTS.directory_of(query_id, None) == SERVICE / query_id
    assert CHECKPOINTS.directory_of(query_id, 9) == SERVICE / f"{query_id}.9"


@given(st.text(alphabet=st.sampled_from("./\\ab\0é"), min_size=1, max_size=12))
def test_no_name_leaves_the_directory_of_the_service(name: str) -> None:
    for query_id in (name, f"CSAS_{name}_1"):
        directory = CHECKPOINTS.directory_of(query_id, None)
        assert Path(os.path.normpath(directory)).parent == SERVICE
        assert "\0" not in str(directory)


@given(st.lists(st.text(alphabet=st.sampled_from("./ab_"), min_size=1), min_size=2, max_size=2, unique=True))
def test_two_queries_have_two_directories(names: list[str]) -> None:
    first, second = (CHECKPOINTS.directory_of(name, None) for name in names)
    assert first != second


def test_other_versions_of_an_id_with_slashes_are_removed(tmp_path: Path) -> None:
    checkpoints = QueryCheckpoints(tmp_path)
    before = checkpoints.directory_of("CSAS_a/b_1", None)
    current = checkpoints.directory_of("CSAS_a/b_1", 5)
    stranger = checkpoints.directory_of("CSAS_a/b_12", None)
    for directory in (before, current, stranger):
        directory.mkdir()
    checkpoints.remove_other_versions("CSAS_a/b_1", current)
    assert sorted(tmp_path.iterdir()) == sorted([current, stranger])


@pytest.mark.parametrize(("state", "is_removed"), [("STARTING", False), ("ERROR", False), ("RUNNING", True)])
async def test_a_replaced_version_is_removed_only_once_the_next_one_runs(
    tmp_path: Path, state: str, is_removed: bool
) -> None:
    checkpoints = QueryCheckpoints(tmp_path)
    before, current = (checkpoints.directory_of("CSAS_A_1", version) for version in (None, 5))
    for directory in (before, current):
        directory.mkdir()
    order = StartQuery(
        query_id="CSAS_A_1",
        name="a",
        build=lambda app: None,
        servers="x:1",
        options={},
        checkpoint=str(current),
    )
    removal = CheckpointRemoval(checkpoints)
    removal.query_changed("CSAS_A_1", SupervisedQuery(order, state))
    await removal.close()
    assert before.is_dir() is not is_removed
    assert current.is_dir()
