"""The cluster's state for `odradek cluster`: brokers, partitions and sizes as one image, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.admin.moves import cluster_image, known_brokers
from odradek.client.admin.types import ConfigResource
from odradek.client.network.errors import PartialFailureError
from odradek.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.model.ids import BrokerId, TopicPartition
from odradek.storage.directories.disk_condition import SPACE_BYTES

if TYPE_CHECKING:
    from odradek.client import Admin
    from odradek.client.admin.reassignments import ReassignmentDescription
    from odradek.client.admin.types import LogDirDescription

_MIN_ISR: Final = "min.insync.replicas"
_ANSWER_S: Final = 5.0
"""A broker that does not describe its disks within this time is silent."""


class DiskRow(NamedTuple):
    """One data directory of a broker; bytes are -1 where the broker does not know them."""

    broker: int
    path: str
    state: str
    """`ok`, `full`, `slow` or `offline`."""
    free_bytes: int
    total_bytes: int


def disk_row(broker: int, directory: LogDirDescription) -> DiskRow:
    """Returns a directory's state, as its broker describes it."""
    free_bytes = directory.usable_bytes
    state = "full" if 0 <= free_bytes < SPACE_BYTES else directory.condition or "ok"
    if directory.error is not None:
        state = "offline"
    return DiskRow(broker, directory.path, state, free_bytes, directory.total_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The brokers' state at one moment. A partition's size is the size of its largest replica."""

    image: ClusterImage
    sizes: dict[TopicPartition, int]
    moves: dict[TopicPartition, ReassignmentDescription]
    held_bytes: dict[int, int]
    """The bytes that each broker holds, by broker."""
    copied: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    """Bytes of a partition's replica, by broker."""
    disks: tuple[DiskRow, ...] = ()
    silent: dict[int, str] = field(default_factory=dict)
    """Why brokers that the cluster counts as alive did not describe their disks, by broker."""
    min_isr: dict[str, int] = field(default_factory=dict)
    """The min.insync.replicas of topics that have replicas out of sync, by topic."""

    @property
    def known_brokers(self) -> list[int]:
        """Returns the brokers that live, and those that hold replicas without living."""
        return known_brokers(self.image)

    def partitions(self) -> list[tuple[TopicPartition, PartitionImage]]:
        return [
            (TopicPartition(topic.name, index), partition)
            for topic in self.image.topics.values()
            for index, partition in enumerate(topic.partitions)
        ]

    def troubles(self) -> dict[str, list[str]]:
        """Returns the partitions that no broker leads, whose replicas are not all in sync, that refuse acks=all for that, and
        that others than the preferred one lead."""
        results: dict[str, list[str]] = {
            "leaderless": [],
            "under_replicated": [],
            "under_min_isr": [],
            "not_preferred": [],
        }
        alive = {broker.broker_id for broker in self.image.brokers}
        for name, partition in self.partitions():
            if partition.leader < 0:
                results["leaderless"].append(str(name))
            elif len(partition.isr) < len(partition.replicas):
                results["under_replicated"].append(str(name))
            needed = min(self.min_isr.get(name.topic, 1), len(partition.replicas))
            if partition.leader < 0 or len(partition.isr) < needed:
                results["under_min_isr"].append(str(name))
            if (
                partition.leader >= 0
                and partition.leader != partition.replicas[0]
                and partition.replicas[0] in alive
            ):
                results["not_preferred"].append(str(name))
        return results

    def rows(self) -> list[dict[str, str | int | None]]:
        """Returns one row for each broker."""
        leads = Counter(partition.leader for _, partition in self.partitions())
        holds = Counter(replica for _, partition in self.partitions() for replica in partition.replicas)
        lags = Counter(
            replica
            for _, partition in self.partitions()
            for replica in partition.replicas
            if replica not in partition.isr
        )
        by_id = {int(broker.broker_id): broker for broker in self.image.brokers}
        rows: list[dict[str, str | int | None]] = []
        for broker_id in self.known_brokers:
            broker = by_id.get(broker_id)
            rows.append(
                {
                    "broker": broker_id,
                    "address": f"{broker.host}:{broker.port}" if broker else None,
                    "rack": broker.rack if broker else None,
                    "state": "dead" if broker is None else "silent" if broker_id in self.silent else "alive",
                    "controller": broker_id == self.image.controller_id,
                    "leads": leads[BrokerId(broker_id)],
                    "replicas": holds[BrokerId(broker_id)],
                    "out_of_sync": lags[BrokerId(broker_id)],
                    "bytes": self.held_bytes.get(broker_id),
                }
            )
        return rows


def describe(admin: Admin, *, all_must_answer: bool = True) -> ClusterState:
    """Reads the state from the cluster. PartialFailureError if a broker does not describe its disks, unless not all must."""
    cluster = admin.describe_cluster()
    topics = admin.describe_topics(admin.list_topics(internal=True))
    sizes: dict[TopicPartition, int] = {}
    held: dict[int, int] = {}
    copied: dict[tuple[TopicPartition, int], int] = {}
    disks: list[DiskRow] = []
    silent: dict[int, str] = {}
    described = admin.describe_log_dirs() if all_must_answer else log_dirs_of_some(admin, silent)
    for broker, directories in described.items():
        for directory in directories:
            disks.append(disk_row(broker, directory))
            for name, replica in directory.replicas.items():
                sizes[name] = max(sizes.get(name, 0), replica.size_bytes)
                held[broker] = held.get(broker, 0) + replica.size_bytes
                copied[name, broker] = replica.size_bytes
    image = cluster_image(cluster, topics.values())
    return ClusterState(
        image=image,
        sizes=sizes,
        moves=admin.list_reassignments(),
        held_bytes=held,
        copied=copied,
        disks=tuple(disks),
        silent=silent,
        min_isr=_min_isr(admin, image.topics),
    )


def log_dirs_of_some(admin: Admin, silent: dict[int, str]) -> Mapping[int, Sequence[LogDirDescription]]:
    """Returns the directories of the brokers that answer, and adds to `silent` why each of the others did not.

    A broker that has just died is silent: the cluster counts it until its session is over.
    """
    try:
        return admin.describe_log_dirs(timeout_s=_ANSWER_S)
    except PartialFailureError as error:
        silent.update((broker, reason.message) for broker, reason in error.errors.items())
        return error.results


def _min_isr(admin: Admin, topics: Mapping[str, TopicImage]) -> dict[str, int]:
    """Returns `min.insync.replicas` of topics whose replicas are not all in sync."""
    resources = [
        ConfigResource.topic(name)
        for name, topic in topics.items()
        if any(len(partition.isr) < len(partition.replicas) for partition in topic.partitions)
    ]
    settings = admin.describe_configs(resources) if resources else {}
    return {
        resource.name: int(entries[_MIN_ISR].value or 1)
        for resource, entries in settings.items()
        if _MIN_ISR in entries
    }
