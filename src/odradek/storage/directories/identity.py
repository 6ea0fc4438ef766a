"""The owner of the data directories: one broker of one cluster, or no one yet."""

from __future__ import annotations

from odradek.model.errors import ConfigError
from odradek.storage.directories.log_directory import LogDirectory


def cluster_of(directories: list[LogDirectory], cluster_id: str | None, node_id: int) -> str | None:
    """Returns the cluster that the directories belong to; None when all are new. ConfigError when they do not agree."""
    paths: dict[str, str] = {}
    for directory in directories:
        if directory.offline is not None:
            continue
        try:
            identity = directory.read_identity()
            holds_partitions = identity is None and cluster_id is not None and directory.holds_partitions()
        except OSError as error:
            directory.failed(error)
            continue
        if identity is None:
            if holds_partitions:
                raise ConfigError(
                    f"data directory {directory.path} holds partitions, and no meta.properties that says of which cluster: "
                    f"it cannot join cluster {cluster_id}; use an empty directory"
                )
            continue
        if identity.node_id != node_id:
            raise ConfigError(
                f"data directory {directory.path} belongs to broker {identity.node_id}, this is broker {node_id}: "
                f"set node.id={identity.node_id} or use another directory"
            )
        if cluster_id is not None and identity.cluster_id != cluster_id:
            raise ConfigError(
                f"data directory {directory.path} belongs to cluster {identity.cluster_id}, not to {cluster_id}: "
                "a broker cannot change its cluster; use another directory"
            )
        paths[identity.cluster_id] = directory.path
    if len(paths) > 1:
        where = " and ".join(f"{path} to {cluster}" for cluster, path in paths.items())
        raise ConfigError(f"the data directories belong to different clusters: {where}")
    return next(iter(paths), None)
