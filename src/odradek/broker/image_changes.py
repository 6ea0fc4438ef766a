"""Applies the cluster's images to this broker: settings, quotas, ACLs, replicas, and what groups hold of deleted topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.broker.cluster.endpoints import server_limits
from odradek.broker.requests.context import BrokerContext
from odradek.broker.requests.throttling import quota_terms
from odradek.broker.security.listeners import SecureListeners
from odradek.cluster.documents import BROKER
from odradek.cluster.image import ClusterImage, differ
from odradek.config.broker import BrokerConfig
from odradek.config.loading import reconfigured
from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy
from odradek.net.server import Server
from odradek.runtime.ports import Runtime
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.broker.access import authorizers
else:
    authorizers = lazy("odradek.broker.access.authorizers")

_log = events.get("broker")


class ImageChanges:
    """What a new image of the cluster changes in one broker. `begin` comes before the first call of `apply`.

    `config`: the settings of the broker's own file. `server`: returns the server of all listeners, while it runs.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        listeners: Callable[[], SecureListeners],
        server: Callable[[], Server | None],
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._listeners = listeners
        self._server = server
        self._broker: BrokerContext | None = None

    def begin(self, broker: BrokerContext) -> None:
        self._broker = broker

    def current_config(self) -> BrokerConfig:
        """Returns the settings in force; before `begin`, the configuration file's."""
        return self._broker.config if self._broker is not None else self._config

    def configured(self, image: ClusterImage) -> BrokerConfig:
        """Returns the file's settings with the image's dynamic ones."""
        return reconfigured(self._config, *_dynamic(self._config, image))

    async def apply(self, before: ClusterImage, after: ClusterImage) -> asyncio.Future[None] | None:
        """Applies an image that follows another. Returns a future for work on the logs that continues, if
        there is any."""
        broker = self._broker
        assert broker is not None, "the first image comes after the start"
        if differ(before.client_quotas, after.client_quotas):
            for _ in broker.quotas.updates(after.client_quotas):
                await asyncio.sleep(0)
        if broker.authorizer is not None and after.acls is not before.acls:
            authorizers.update_acls(broker.authorizer, after)
        if _dynamic(self._config, after) != _dynamic(self._config, before):
            await self._reconfigure(broker, after)
        logs = await broker.replicas.apply(before, after, broker.config)
        gone = frozenset(before.topics.keys() - after.topics.keys())
        broker.traffic.forget(gone)
        if broker.cluster.leads:
            broker.elections.note(before, after)
        groups, shares = broker.kinds.groups.existing_parts, broker.kinds.shares.existing_parts
        if gone and groups is not None:
            await groups.service.topics_deleted(gone)
        if gone and shares is not None:
            await shares.service.topics_deleted(frozenset(before.topics[name].topic_id for name in gone))
        return logs

    async def _reconfigure(self, broker: BrokerContext, image: ClusterImage) -> None:
        try:
            config = self.configured(image)
        except OdradekError as error:  # the controller took what this broker, with its own file, cannot
            _log.error("settings_not_applied", reason=str(error))
            return
        broker.config = config
        broker.quotas.update(image.client_quotas, quota_terms(config))
        await broker.replicas.reconfigure(image, config)
        self._listeners().reconfigure(config.security)
        server = self._server()
        if server is not None:
            server.limits = server_limits(config, self._runtime)


def _dynamic(config: BrokerConfig, image: ClusterImage) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Returns the dynamic settings of all brokers, and of this one."""
    return image.broker_configs, image.resource_configs.get((BROKER, str(config.server.node_id)), {})
