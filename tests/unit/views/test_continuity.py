"""When rows that were kept may be continued."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from odradek.views.continuity import TopicExtent, reason_to_rebuild
from odradek.views.store import AppliedPosition, ViewState

NOW_MS = 1_000_000_000
KEPT_MS = 3_600_000
POSITION = AppliedPosition(offset=10, leader_epoch=3, complete_at_ms=NOW_MS - 1_000)
KEPT = ViewState(
    topic="totals", topic_id=UUID(int=1), key_format="string", is_complete=True, positions={0: POSITION}
)
LOOK = TopicExtent(
    topic_id=UUID(int=1),
    key_format="string",
    starts={0: 0, 1: 0},
    epoch_ends={0: 12},
    tombstone_retention_ms=KEPT_MS,
)


@pytest.mark.parametrize(
    "look",
    [
        LOOK,
        replace(LOOK, starts={0: 10}),
        replace(LOOK, epoch_ends={0: 10}),
        replace(LOOK, epoch_ends={}),
        replace(LOOK, tombstone_retention_ms=None),
    ],
    ids=["as it was", "begins at the position", "epoch ends at the position", "no epochs", "not compacted"],
)
def test_rows_are_continued(look: TopicExtent) -> None:
    assert reason_to_rebuild(KEPT, look, NOW_MS) is None


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (replace(LOOK, topic_id=UUID(int=2)), "made again"),
        (replace(LOOK, key_format="long"), "stored as string"),
        (replace(LOOK, starts={1: 0}), "no partition 0"),
        (replace(LOOK, starts={0: 11}), "begins at offset 11"),
        (replace(LOOK, epoch_ends={0: 9}), "lost its end"),
        (replace(LOOK, epoch_ends={0: -1}), "lost its end"),
        (replace(LOOK, tombstone_retention_ms=1_000), "tombstones are kept for 1 s"),
    ],
)
def test_rows_are_read_again(look: TopicExtent, reason: str) -> None:
    assert reason in (reason_to_rebuild(KEPT, look, NOW_MS) or "")


@pytest.mark.parametrize(
    ("age_ms", "is_continued"), [(KEPT_MS - 1, True), (KEPT_MS, False), (-1_000, True), (-600_000, False)]
)
def test_rows_are_continued_for_as_long_as_tombstones_are_kept(age_ms: int, is_continued: bool) -> None:
    kept = replace(KEPT, positions={0: replace(POSITION, complete_at_ms=NOW_MS - age_ms)})
    assert (reason_to_rebuild(kept, LOOK, NOW_MS) is None) == is_continued


def test_without_compaction_the_age_does_not_matter() -> None:
    kept = replace(KEPT, positions={0: replace(POSITION, complete_at_ms=0)})
    assert reason_to_rebuild(kept, replace(LOOK, tombstone_retention_ms=None), NOW_MS) is None
