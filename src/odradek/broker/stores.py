"""Opens a broker's data directories and the registry of its cluster, and checks that the two belong together."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.cluster.controller.store import ClusterStore
from odradek.cluster.image import NO_LEADER, ClusterImage
from odradek.cluster.registration import join_cluster
from odradek.config.broker import BrokerConfig
from odradek.model.lazy import lazy
from odradek.registry import EmbeddedRegistry, Registry
from odradek.runtime.ports import Runtime
from odradek.storage.directories.log_manager import LogManager

if TYPE_CHECKING:
    from odradek.registry import zookeeper
else:
    zookeeper = lazy("odradek.registry.zookeeper")

OpenRegistry = Callable[[BrokerConfig, Runtime, str], Awaitable[Registry]]
"""(settings, runtime, the broker's first data directory) -> the registry, with a session."""

_IDENTITY: Final = "meta.properties"
_CLUSTER_ID: Final = "cluster.id="


class Stores(NamedTuple):
    directories: LogManager
    registry: Registry


async def open_stores(config: BrokerConfig, runtime: Runtime, open_registry: OpenRegistry | None) -> Stores:
    """Both, or neither and an OdradekError.

    A broker that keeps the registry in its own data directory founds a cluster when there is none. In a registry that it
    shares, only brokers with empty directories do.
    """
    if open_registry is None and _keeps_registry(config):
        return await _with_own_registry(config, runtime)
    registry = await (open_registry or _open_registry)(config, runtime, config.storage.log_dirs[0])
    try:
        cluster_id = await join_cluster(
            registry, known=_known_cluster(config, runtime), may_found=False, new_id=_new_id(runtime)
        )
        directories = _open_directories(config, runtime, cluster_id)
    except BaseException:
        await registry.close()
        raise
    return Stores(directories=directories, registry=registry)


async def first_image(registry: Registry, cluster_id: str) -> ClusterImage:
    """Returns the registry's image, to open logs by. No broker leads in it: only the controller knows the leaders, and under
    which epoch.
    """
    empty = ClusterImage(
        version=0, cluster_id=cluster_id, controller_id=NO_LEADER, brokers=(), topics={}, topics_by_id={}
    )
    image = await ClusterStore(registry, None, lambda: None).load(empty)
    return image.with_topics(
        replace(
            topic, partitions=tuple(replace(partition, leader=NO_LEADER) for partition in topic.partitions)
        )
        for topic in image.topics.values()
    )


async def _with_own_registry(config: BrokerConfig, runtime: Runtime) -> Stores:
    directories = _open_directories(config, runtime, None)
    try:
        registry = await _open_registry(config, runtime, directories.home)
        try:
            await join_cluster(
                registry, known=directories.cluster_id, may_found=True, new_id=_new_id(runtime)
            )
        except BaseException:
            await registry.close()
            raise
    except BaseException:
        directories.close()
        raise
    return Stores(directories=directories, registry=registry)


def _keeps_registry(config: BrokerConfig) -> bool:
    return not config.zookeeper.connect and config.cluster.registry_dir in (None, config.storage.log_dirs[0])


async def _open_registry(config: BrokerConfig, runtime: Runtime, home: str) -> Registry:
    """ZooKeeper where it is configured, else the registry in a directory of this machine."""
    if config.zookeeper.connect:
        return await zookeeper.ZooKeeperRegistry.open(config.zookeeper, runtime)
    directory = config.cluster.registry_dir or home
    runtime.disk.make_directory(directory)
    return EmbeddedRegistry.open(
        runtime, directory, session_timeout_s=config.cluster.broker_session_timeout_ms / 1000
    )


def _open_directories(config: BrokerConfig, runtime: Runtime, cluster_id: str | None) -> LogManager:
    return LogManager.open(
        runtime,
        config.storage.log_dirs,
        node_id=config.server.node_id,
        cluster_id=cluster_id,
        new_cluster_id=_new_id(runtime),
        producer_expiration_ms=config.storage.producer_id_expiration_ms,
    )


def _known_cluster(config: BrokerConfig, runtime: Runtime) -> str | None:
    """Returns the cluster that the data belongs to; None when it is new. Whether all directories agree is looked at when they
    are opened.
    """
    for directory in config.storage.log_dirs:
        path = posixpath.join(directory, _IDENTITY)
        if runtime.disk.exists(path):
            for line in runtime.disk.read(path).decode(errors="replace").splitlines():
                if line.startswith(_CLUSTER_ID):
                    return line.removeprefix(_CLUSTER_ID).strip()
    return None


def _new_id(runtime: Runtime) -> Callable[[], str]:
    """Returns a new id in Kafka's form: the 16 bytes of a UUID in URL-safe base64, 22 characters."""
    return lambda: base64.urlsafe_b64encode(runtime.entropy.uuid().bytes).decode().rstrip("=")
