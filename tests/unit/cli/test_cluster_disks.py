"""What `odradek cluster status` says of disks, and of partitions with too few replicas in sync."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.cli.cluster.state import ClusterState, disk_row
from odradek.client.admin.types import LogDirDescription
from odradek.cluster.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from odradek.model.ids import BrokerId, LeaderEpoch


def directory(usable_bytes: int, error: str | None = None) -> LogDirDescription:
    return LogDirDescription(
        path="/data", total_bytes=1 << 30, usable_bytes=usable_bytes, replicas={}, error=error
    )


@pytest.mark.parametrize(
    ("usable_bytes", "error", "state"),
    [
        (1 << 29, None, "ok"),
        (4096, None, "full"),
        (0, None, "full"),
        (-1, None, "ok"),
        (-1, "EIO", "offline"),
    ],
)
def test_a_disk_is_full_where_no_batch_may_fit(usable_bytes: int, error: str | None, state: str) -> None:
    row = disk_row(3, directory(usable_bytes, error))
    assert (row.broker, row.path, row.state, row.free_bytes) == (3, "/data", state, usable_bytes)


def test_partitions_below_min_isr_are_those_that_refuse_acks_all() -> None:
    def partition(leader: int, *isr: int) -> PartitionImage:
        return PartitionImage(
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(0),
            replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
            isr=tuple(map(BrokerId, isr)),
        )

    topic = TopicImage(
        name="t",
        topic_id=UUID(int=1),
        partitions=(partition(1, 1, 2, 3), partition(1, 1, 2), partition(1, 1), partition(NO_LEADER, 2, 3)),
    )
    image = ClusterImage(
        version=0,
        cluster_id="c",
        controller_id=BrokerId(1),
        brokers=(),
        topics={"t": topic},
        topics_by_id={topic.topic_id: topic},
    )
    state = ClusterState(image=image, sizes={}, moves={}, held_bytes={}, min_isr={"t": 2})
    assert state.troubles()["under_min_isr"] == ["t-2", "t-3"]
    assert state.troubles()["under_replicated"] == ["t-1", "t-2"]
