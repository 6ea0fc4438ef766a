"""What `odradek cluster status` says of disks, and of partitions with too few replicas in sync."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from odradek.cli.cluster.state import ClusterState, disk_row, log_dirs_of_some
from odradek.client.admin.types import LogDirDescription
from odradek.client.network.errors import PartialFailureError
from odradek.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.model.errors import ErrorCode, KafkaError
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


def test_brokers_that_answer_are_shown_beside_one_that_does_not() -> None:
    reason = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nothing listens there")

    class Brokers:
        def describe_log_dirs(self, *, timeout_s: float) -> dict[int, tuple[LogDirDescription, ...]]:
            raise PartialFailureError("describe_log_dirs", {2: reason}, {1: (directory(4096),)})

    silent: dict[int, str] = {}
    assert log_dirs_of_some(cast(Any, Brokers()), silent) == {1: (directory(4096),)}
    assert silent == {2: "nothing listens there"}
    member = BrokerImage(broker_id=BrokerId(2), host="h", port=1)
    image = ClusterImage(
        version=0, cluster_id="c", controller_id=BrokerId(1), brokers=(member,), topics={}, topics_by_id={}
    )
    state = ClusterState(image=image, sizes={}, moves={}, held_bytes={}, silent=silent)
    assert [row["state"] for row in state.rows()] == ["silent"]
