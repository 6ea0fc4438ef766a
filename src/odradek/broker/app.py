"""The broker: where all parts are made and wired, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Final

from odradek.broker.cluster_link import ClusterLink
from odradek.broker.context import Parts
from odradek.broker.coordinators import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, Coordinators
from odradek.broker.dispatch import Dispatcher
from odradek.broker.fetch_sessions import FetchSessions
from odradek.broker.handlers import DATA_PATH, Handlers
from odradek.broker.log_moves import LogMoves
from odradek.broker.producer_ids import ProducerIds
from odradek.broker.replicas import Replicas
from odradek.broker.throttling import quota_terms
from odradek.cluster.controller import Controller
from odradek.cluster.documents import BROKER
from odradek.cluster.image import BrokerImage, ClusterImage
from odradek.cluster.planning import ClusterDefaults
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import format_address
from odradek.config.topic import topic_config
from odradek.model.ids import BrokerId
from odradek.net.server import OpenListener, Server, ServerLimits
from odradek.protocol import api_by_name
from odradek.registry import EmbeddedRegistry
from odradek.runtime.ports import Runtime
from odradek.security.quotas import Quotas
from odradek.storage.directories import LogDirectories
from odradek.telemetry import events

_log = events.get("broker")
_DRAIN_SECONDS: Final = 5.0
_SESSION_EVICTION_SECONDS: Final = 120.0


class Broker:
    """`await start()`, serve, `await stop()`. `fatal` is set when the broker cannot go on (every log directory failed)."""

    def __init__(self, config: BrokerConfig, runtime: Runtime) -> None:
        self._config = config
        self._runtime = runtime
        self._background: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._directories: LogDirectories | None = None
        self._registry: EmbeddedRegistry | None = None
        self._controller: Controller | None = None
        self._replicas: Replicas | None = None
        self._server: Server | None = None
        self._parts: Parts | None = None
        self._coordinators = Coordinators()
        self._handlers = Handlers()
        self.addresses: list[tuple[str, int]] = []
        self.fatal = asyncio.Event()

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener, once started."""
        host, port = self.addresses[0]
        return format_address(host or "127.0.0.1", port)

    @property
    def port(self) -> int:
        return self.addresses[0][1]

    async def start(self) -> None:
        """Lock the data, recover it, then accept connections. Raises an `OdradekError` that says what is in the way."""
        try:
            await self._start()
        except BaseException:
            await self.stop(drain_seconds=0.0)
            raise

    async def _start(self) -> None:
        config, runtime = self._config, self._runtime
        directories = self._directories = LogDirectories.open(
            runtime,
            config.log_dirs,
            node_id=config.node_id,
            new_cluster_id=_new_cluster_id(runtime),
            producer_expiration_ms=config.producer_id_expiration_ms,
        )
        registry = self._registry = EmbeddedRegistry.open(runtime, directories.home)
        me = BrokerImage(broker_id=BrokerId(config.node_id), host="", port=0, rack=config.broker_rack)
        defaults = ClusterDefaults(
            partition_count=config.num_partitions,
            replication_factor=config.default_replication_factor,
            check_configs=lambda configs: _check_configs(configs, self._current_config()),
        )
        controller = self._controller = await Controller.load(
            registry,
            runtime.entropy,
            defaults,
            cluster_id=directories.cluster_id,
            broker=me,
            apply=self._apply,
        )
        await controller.begin_epoch()
        config = self._with_dynamic(controller.image)
        replicas = self._replicas = Replicas(
            runtime, directories, me=me.broker_id, on_all_failed=self.fatal.set
        )
        coordinators = self._coordinators = Coordinators()
        replicas.announce(on_led=coordinators.led, on_lost=coordinators.lost)
        cluster = ClusterLink(controller)
        producer_ids = ProducerIds(cluster.allocate_producer_ids)
        self._expect_coordinators(coordinators, controller, replicas, producer_ids)
        self._parts = Parts(
            config=config,
            runtime=runtime,
            cluster=cluster,
            replicas=replicas,
            fetch_sessions=FetchSessions(
                slots=config.max_incremental_fetch_session_cache_slots,
                eviction_seconds=_SESSION_EVICTION_SECONDS,
                chance=runtime.entropy.uniform,
            ),
            producer_ids=producer_ids,
            coordinators=coordinators,
            quotas=Quotas(quota_terms(config)),
            moves=LogMoves(replicas, runtime.offload),
        )
        self._parts.quotas.update(controller.image.client_quotas)
        coordinators.begin(self._parts)
        await replicas.load(controller.image, config)
        await self._listen(self._parts)
        self._start_background(config, replicas)
        _log.info(
            "broker_started",
            address=self.address,
            node=config.node_id,
            cluster=directories.cluster_id,
            topics=len(controller.image.topics),
        )

    def _expect_coordinators(
        self,
        coordinators: Coordinators,
        controller: Controller,
        replicas: Replicas,
        producer_ids: ProducerIds,
    ) -> None:
        runtime, config = self._runtime, self._current_config

        def groups() -> object:
            from odradek.broker.group_wiring import add_groups

            return add_groups(coordinators, runtime, config, lambda: controller.image)

        def transactions() -> object:
            from odradek.broker.transactions import coordinate_transactions

            return coordinate_transactions(
                coordinators,
                replicas,
                producer_ids,
                runtime.clock,
                config=config,
                image=lambda: controller.image,
            )

        def shares() -> object:
            from odradek.broker.share_wiring import add_shares

            return add_shares(coordinators, replicas, runtime.clock, config, lambda: controller.image)

        coordinators.expect(CONSUMER_OFFSETS, groups)
        coordinators.expect(SHARE_GROUP_STATE, shares)
        coordinators.expect(TRANSACTION_STATE, transactions)

    async def _listen(self, parts: Parts) -> None:
        config = parts.config
        server = self._server = Server(
            dispatcher := Dispatcher(parts, self._handlers, parts.quotas),
            _limits(config),
            now=self._runtime.clock.monotonic,
        )
        server.pace = partial(_pace, parts)
        parts.unread_bytes = lambda: server.unread_bytes
        parts.serve = dispatcher.handle
        advertised = {
            listener.name: (listener.host, listener.port) for listener in config.advertised_listeners
        }
        for listener in config.listeners:
            opened = OpenListener(
                name=listener.name, advertised=advertised.get(listener.name), broker_id=config.node_id
            )
            port = await server.listen(opened, listener.host, listener.port)
            self.addresses.append((listener.host, port))

    async def stop(self, *, drain_seconds: float = _DRAIN_SECONDS) -> None:
        """Answer what is under way, make everything durable, mark the data as cleanly closed. Idempotent.

        A part that fails to stop keeps no other from stopping; what it raised is raised in the end.
        """
        server, controller, replicas = self._server, self._controller, self._replicas
        registry, directories = self._registry, self._directories
        self._server = self._controller = self._replicas = self._registry = self._directories = None
        async with AsyncExitStack() as ending:  # the last that is pushed is the first that ends
            if directories is not None:
                ending.callback(_log.info, "broker_stopped", node=self._config.node_id)
                ending.callback(directories.close)
            if registry is not None:
                ending.push_async_callback(registry.close)
            if replicas is not None:
                ending.push_async_callback(replicas.close)
            if controller is not None:
                ending.push_async_callback(controller.close)
            if self._parts is not None:
                ending.push_async_callback(self._parts.moves.close)
            ending.push_async_callback(self._stop_background)
            if replicas is not None:
                ending.callback(replicas.stop_compacting)
            if server is not None:
                ending.push_async_callback(server.stop, drain_seconds=drain_seconds)
            ending.callback(
                self._coordinators.close
            )  # before that: whoever waits for a group would hold up the drain
            if (shares := self._coordinators.made(SHARE_GROUP_STATE)) is not None:
                ending.callback(shares.close)
            if (transactions := self._coordinators.made(TRANSACTION_STATE)) is not None:
                ending.push_async_callback(transactions.close)

    async def _stop_background(self) -> None:
        """A round under way comes to its end: what it does on other threads must not go on behind our back."""
        self._stopping.set()
        await asyncio.gather(*self._background)
        self._background.clear()

    # -- changes of the cluster

    def _current_config(self) -> BrokerConfig:
        return self._parts.config if self._parts is not None else self._config

    def _with_dynamic(self, image: ClusterImage) -> BrokerConfig:
        return self._config.reconfigured(*_dynamic(self._config, image))

    async def _apply(self, before: ClusterImage, after: ClusterImage) -> None:
        parts = self._parts
        if parts is None:  # the epoch that begins before the logs are open
            return
        if after.client_quotas != before.client_quotas:
            parts.quotas.update(after.client_quotas)
        if _dynamic(self._config, after) != _dynamic(self._config, before):
            parts.config = self._with_dynamic(after)
            parts.quotas.update(after.client_quotas, quota_terms(parts.config))
            await parts.replicas.reconfigure(after, parts.config)
            if self._server is not None:
                self._server.limits = _limits(parts.config)
        await parts.replicas.apply(before, after, parts.config)
        gone = frozenset(before.topics.keys() - after.topics.keys())
        groups = parts.coordinators.made(CONSUMER_OFFSETS)
        if gone and groups is not None:
            await groups.topics_deleted(gone)
        shares = parts.coordinators.made(SHARE_GROUP_STATE)
        if gone and shares is not None:
            await shares.topics_deleted(frozenset(before.topics[name].topic_id for name in gone))

    async def _prune_share_state(self) -> None:
        shares = self._coordinators.made(SHARE_GROUP_STATE)
        if shares is not None:
            await shares.prune()

    # -- the clockwork

    def _start_background(self, config: BrokerConfig, replicas: Replicas) -> None:
        every: list[tuple[str, float, Callable[[], Awaitable[None]]]] = [
            ("retention", config.log_retention_check_interval_ms / 1000, replicas.apply_retention),
            (
                "checkpoints",
                config.log_flush_offset_checkpoint_interval_ms / 1000,
                replicas.write_checkpoints,
            ),
            ("storage", _STORAGE_CHECK_SECONDS, replicas.try_to_recover),
            ("compaction", config.log_cleaner_backoff_ms / 1000, replicas.compact),
            ("flush by time", _FLUSH_CHECK_SECONDS, replicas.flush_by_time),
            (
                "share state",
                config.share_coordinator_state_topic_prune_interval_ms / 1000,
                self._prune_share_state,
            ),
        ]
        loop = asyncio.get_running_loop()
        self._background = [
            loop.create_task(_repeat(name, seconds, work, self._stopping)) for name, seconds, work in every
        ]
        self._background.append(loop.create_task(_import_handlers(self._handlers)))


async def _import_handlers(handlers: Handlers) -> None:
    """Those that no client does without; one a round, for requests wait meanwhile."""
    for name in DATA_PATH:
        await asyncio.sleep(0)
        handlers.load(api_by_name(name))


_STORAGE_CHECK_SECONDS: Final = 2.0
_FLUSH_CHECK_SECONDS: Final = 0.5
_INTERVAL_SECONDS_MIN: Final = 0.05


async def _repeat(
    name: str, seconds: float, work: Callable[[], Awaitable[None]], stopping: asyncio.Event
) -> None:
    while not await _set_within(stopping, max(seconds, _INTERVAL_SECONDS_MIN)):
        try:
            await work()
        except Exception:  # noqa: BLE001 - the root of a task: the next round may succeed
            _log.exception("background_work_failed", work=name)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _dynamic(config: BrokerConfig, image: ClusterImage) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Dynamic settings of all brokers, and of this one."""
    return image.broker_configs, image.resource_configs.get((BROKER, str(config.node_id)), {})


def _pace(parts: Parts, host: str) -> tuple[float, bool]:
    """How long a new connection must wait, and whether it is closed then (KIP-612)."""
    if not parts.quotas.limits_connections:
        return 0.0, False
    return parts.quotas.connection_from(host, parts.runtime.clock.monotonic())


def _limits(config: BrokerConfig) -> ServerLimits:
    return ServerLimits(
        frame_bytes_max=config.socket_request_max_bytes,
        in_flight_max=config.queued_max_requests,
        connections_max=config.max_connections,
        connections_per_host_max=config.max_connections_per_ip,
        connections_per_host_overrides=config.max_connections_per_ip_overrides,
        idle_seconds_max=config.connections_max_idle_ms / 1000
        if config.connections_max_idle_ms > 0
        else 1e12,
        backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
    )


def _check_configs(configs: object, config: BrokerConfig) -> None:
    topic_config(configs, config)  # type: ignore[arg-type]


def _new_cluster_id(runtime: Runtime) -> Callable[[], str]:
    """Kafka's form of an id: the 16 bytes of a UUID in URL-safe base64, 22 characters."""
    return lambda: base64.urlsafe_b64encode(runtime.entropy.uuid().bytes).decode().rstrip("=")
