"""The broker: where all parts are made and wired, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.background_work import BackgroundWork
from odradek.broker.cluster.disk_identity import DiskIdentity
from odradek.broker.cluster.endpoints import registration, server_limits
from odradek.broker.cluster.image_age import bounded_age
from odradek.broker.cluster.link import ClusterLink
from odradek.broker.coordinators.producer_ids import ControllerIdBlocks, ProducerIds
from odradek.broker.coordinators.runtime import CoordinatorRuntime
from odradek.broker.handlers import Handlers
from odradek.broker.image_changes import ImageChanges
from odradek.broker.recurring_work import RecurringWork
from odradek.broker.replica_wiring import Proposals, fetchers
from odradek.broker.replicas.log_dir_moves import LogDirMoves
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.broker.requests.context import BrokerContext, CoordinatorKinds
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.throttling import quota_terms
from odradek.broker.security.listeners import SecureListeners
from odradek.broker.sessions.fetch_sessions import FetchSessions
from odradek.broker.stores import OpenRegistry, first_image, open_stores
from odradek.cluster.availability import TopicRules
from odradek.cluster.controller.controller import Controller
from odradek.cluster.controller.maintenance import policy_of
from odradek.cluster.image import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from odradek.cluster.planning import ClusterDefaults
from odradek.cluster.sync import BrokerReport
from odradek.config.access import DEFAULT_PRINCIPAL_BUILDER
from odradek.config.broker import BrokerConfig
from odradek.config.listening.listeners import format_address
from odradek.config.topic import topic_config
from odradek.model.ids import BrokerId
from odradek.model.lazy import lazy
from odradek.net.server import Server
from odradek.registry import Registry
from odradek.registry.election import Term
from odradek.replication.leader_role import IsrCounts
from odradek.replication.partition import ReplicationContext as ReplicaMembership
from odradek.runtime.ports import Runtime
from odradek.runtime.turns import Turns
from odradek.security.quotas import Quotas
from odradek.storage.directories.log_manager import LogManager
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.broker import loop_monitor
    from odradek.broker.access import authorizers, gate
    from odradek.broker.audit import wiring as audit_wiring
    from odradek.broker.audit.trail import AuditTrail
    from odradek.broker.coordinators import groups as coordinators_groups
    from odradek.broker.coordinators import transactions as coordinators_transactions
    from odradek.broker.instruments.record_traces import RecordTraces
    from odradek.broker.share import wiring
    from odradek.runtime.real_loop_watch import LoopWatch
    from odradek.security import principal_builder
    from odradek.security.tls.listener_tls import ListenerCertificates
else:
    principal_builder = lazy("odradek.security.principal_builder")
    audit_wiring = lazy("odradek.broker.audit.wiring")
    authorizers = lazy("odradek.broker.access.authorizers")
    gate = lazy("odradek.broker.access.gate")
    coordinators_groups = lazy("odradek.broker.coordinators.groups")
    coordinators_transactions = lazy("odradek.broker.coordinators.transactions")
    loop_monitor = lazy("odradek.broker.loop_monitor")
    wiring = lazy("odradek.broker.share.wiring")

_log = events.get("broker")
_DRAIN_SECONDS: Final = 5.0
_PEER_SECONDS: Final = 30.0
_SESSION_EVICTION_SECONDS: Final = 120.0


class _Closing(Protocol):
    def close(self) -> Awaitable[None]: ...


class Broker:
    """A broker process's parts, started and stopped in order: `await start()`, serve, `await stop()`. `fatal` is set when
    the broker cannot go on (every log directory failed)."""

    def __init__(
        self, config: BrokerConfig, runtime: Runtime, *, open_registry: OpenRegistry | None = None
    ) -> None:
        """`open_registry` is for the simulator: a registry other than the one in the settings."""
        self._config = config
        self._runtime = runtime
        self._open_registry = open_registry
        self.background = BackgroundWork(runtime.offload)
        self._ending = asyncio.Lock()
        self._directories: LogManager | None = None
        self._registry: Registry | None = None
        self._recurring_work: RecurringWork | None = None
        """The recurring work, and the record of this broker's disks; None until the broker is registered."""
        self._cluster: ClusterLink | None = None
        self._replicas: ReplicaManager | None = None
        self._server: Server | None = None
        self._context: BrokerContext | None = None
        self._proposals: Proposals | None = None
        self._producer_ids: ProducerIds | None = None
        self._coordinators = CoordinatorRuntime()
        self._kinds: CoordinatorKinds | None = None
        self._own_listeners: SecureListeners | None = None
        self._changes = ImageChanges(
            config, runtime, listeners=lambda: self._listeners, server=lambda: self._server
        )
        self._handlers = Handlers()
        self._trail: AuditTrail | None = None
        self.isr_counts: Final = IsrCounts()
        """Counts of changes to the in-sync replicas of the partitions that this broker leads."""
        self.turns = Turns(runtime.clock.monotonic)
        """The event loop, as long work shares it."""
        self.addresses: list[tuple[str, int]] = []
        self.fatal = asyncio.Event()
        self.traces: RecordTraces | None = None
        """Makes spans of traced records; set before the start."""
        self.loop_watch: LoopWatch | None = None
        """Its `counts` say how often, and for how long, the event loop was held."""

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener, once started."""
        host, port = self.addresses[0]
        return format_address(host or "127.0.0.1", port)

    @property
    def port(self) -> int:
        return self.addresses[0][1]

    @property
    def context(self) -> BrokerContext:
        """The parts of the broker, once started. Also after it stopped."""
        assert self._context is not None, "the broker has not started"
        return self._context

    @property
    def is_serving(self) -> bool:
        return self._server is not None

    @property
    def server(self) -> Server:
        """The server of all listeners, while the broker runs."""
        assert self._server is not None, "the broker does not run"
        return self._server

    @property
    def certificates(self) -> Mapping[str, ListenerCertificates]:
        """The certificates of the listeners with TLS, by listener name."""
        return self._listeners.certificates

    async def start(self) -> None:
        """Lock the data, recover it, then accept connections. Raises an `OdradekError` with the reason if it
        cannot."""
        try:
            await self._start()
        except BaseException:
            await self.stop(drain_seconds=0.0)
            raise

    def watch_loop(self) -> None:
        """Notice from now on, until the broker stops, when something holds the event loop. Not in the simulator: it looks
        with a thread of its own."""
        limit_ms = self._changes.current_config().server.odradek_loop_held_warn_ms
        if self.loop_watch is None and limit_ms > 0:
            self.loop_watch = loop_monitor.watch_loop(limit_ms / 1000, self._runtime.clock.monotonic)

    @property
    def _listeners(self) -> SecureListeners:
        if self._own_listeners is None:
            self._own_listeners = SecureListeners(self._config, self._runtime, lambda: self.context.image)
        return self._own_listeners

    async def _start(self) -> None:
        runtime = self._runtime
        _ = self._listeners  # before anything is opened: a certificate that cannot be used is found here
        stores = await open_stores(self._config, runtime, self._open_registry)
        directories = self._directories = stores.directories
        registry = self._registry = stores.registry
        me = BrokerId(self._config.server.node_id)
        image = await first_image(registry, directories.cluster_id)
        cluster = self._cluster = ClusterLink(
            runtime,
            registry,
            image,
            broker_id=me,
            apply=self._changes.apply,
            request_timeout_s=_PEER_SECONDS,
            security=self._listeners.to_others,
            control_planes=self._listeners.possible_control_planes,
            image_age=bounded_age(self._config.access, runtime.clock.monotonic),
        )
        config = self._changes.configured(image)
        replicas = self._replicas = self._new_replicas(config, cluster, directories, me)
        context = self._context = self._new_context(config, cluster, replicas, me)
        self._changes.begin(context)
        context.quotas.update(image.client_quotas)
        self._listeners.observers.append(context.logins.note)
        if context.authorizer is not None:
            authorizers.update_acls(context.authorizer, image)
            context.gate = gate.Gate(context, context.authorizer, image_age=cluster.image_age)
        if config.audit.sinks:
            self._trail = audit_wiring.begin_audit(context, me, self._changes.current_config)
            self._listeners.observers.append(partial(audit_wiring.note_login, self._trail))
            if context.gate is not None and context.audit is not None:
                context.gate.report_to(context.audit.refused)
        context.coordinators.begin(context)
        session_timeout_ms = max(
            config.cluster.broker_session_timeout_ms, config.zookeeper.session_timeout_ms
        )
        identity = DiskIdentity(
            runtime,
            registry,
            directories,
            me,
            cluster.incarnation,
            session_timeout_s=session_timeout_ms / 1000,
            security=self._listeners.to_others,
        )
        await replicas.load(image, config, await identity.load())
        await self._listen(context)
        await self._join(cluster, registry, directories, identity)
        recurring_work = self._recurring_work = RecurringWork(context, identity, self._listeners, self._trail)
        await self._listeners.make_first_users(cluster)
        self.background.start(recurring_work.rounds(config))
        self.background.import_handlers(self._handlers)
        _log.info(
            "broker_started",
            address=self.address,
            node=me,
            cluster=directories.cluster_id,
            topics=len(cluster.image.topics),
        )

    def _new_replicas(
        self, config: BrokerConfig, cluster: ClusterLink, directories: LogManager, me: BrokerId
    ) -> ReplicaManager:
        proposals = self._proposals = Proposals(cluster, me, self._handlers.__getitem__, lambda: self.context)
        lag_s_max = config.replication.replica_lag_time_max_ms / 1000
        replicas = ReplicaManager(
            self._runtime,
            directories,
            me=me,
            on_all_failed=self.fatal.set,
            member=ReplicaMembership(
                broker_id=me, lag_s_max=lag_s_max, proposals=proposals, counts=self.isr_counts
            ),
        )
        replicas.expect_following(lambda: fetchers(self._runtime, cluster, me, lambda: self.context))
        return replicas

    def _new_context(
        self, config: BrokerConfig, cluster: ClusterLink, replicas: ReplicaManager, me: BrokerId
    ) -> BrokerContext:
        runtime = self._runtime
        coordinators = self._coordinators = CoordinatorRuntime()
        coordinators.send_to_peer = cluster.send
        replicas.announce(on_led=coordinators.led, on_lost=coordinators.lost)
        producer_ids = self._producer_ids = ProducerIds(_blocks(cluster, me).allocate)
        kinds = self._kinds = self._expect_coordinators(coordinators, cluster, replicas, producer_ids)
        authorizer = None
        if config.access.authorizer_class_name:
            authorizer = authorizers.authorizer_of(config.access, config.originals)
        return BrokerContext(
            config=config,
            runtime=runtime,
            cluster=cluster,
            replicas=replicas,
            fetch_sessions=FetchSessions(
                slots=config.server.max_incremental_fetch_session_cache_slots,
                eviction_seconds=_SESSION_EVICTION_SECONDS,
                chance=runtime.entropy.uniform,
            ),
            producer_ids=producer_ids,
            coordinators=coordinators,
            kinds=kinds,
            quotas=Quotas(quota_terms(config)),
            moves=LogDirMoves(replicas, runtime.offload),
            authorizer=authorizer,
            principals=None
            if config.access.principal_builder_class == DEFAULT_PRINCIPAL_BUILDER
            else principal_builder.make_principals(config.access.principal_builder_class),
            turns=self.turns,
            traces=self.traces,
        )

    async def _join(
        self, cluster: ClusterLink, registry: Registry, directories: LogManager, identity: DiskIdentity
    ) -> None:
        config = self._config
        me = registration(config, self.addresses, directory_id=_directory_id(directories))
        inherited = topic_config({}, config)
        defaults = ClusterDefaults(
            partition_count=config.topics.num_partitions,
            replication_factor=config.topics.default_replication_factor,
            check_configs=lambda configs: _check_configs(configs, self._changes.current_config()),
            descriptors=self._runtime.descriptors,
            rules=TopicRules(
                min_isr=inherited.min_insync_replicas,
                allows_unclean=inherited.unclean_leader_election_enable,
            ),
        )

        async def load_controller(term: Term) -> Controller:
            return await Controller.load(
                registry,
                self._runtime.entropy,
                defaults,
                cluster_id=directories.cluster_id,
                broker_id=me.broker_id,
                apply=cluster.decided,
                term=term,
                clock=self._runtime.clock,
                maintenance=lambda: policy_of(self._changes.current_config()),
                known=cluster.image if cluster.has_applied else None,
            )

        assert self._replicas is not None
        self._replicas.report_to(cluster.report_now)
        await cluster.join(me, load_controller, self._report, identity)
        if cluster.failed is not None:
            cluster.failed.add_done_callback(self._cannot_go_on)

    def _cannot_go_on(self, failed: asyncio.Future[None]) -> None:
        """Another broker has this one's id now: to go on would be to serve as a ghost."""
        if not failed.cancelled() and failed.exception() is not None:
            self.fatal.set()

    def _report(self) -> BrokerReport:
        return self.context.replicas.health.report()  # also while it stops

    def _expect_coordinators(
        self,
        coordinators: CoordinatorRuntime,
        cluster: ClusterLink,
        replicas: ReplicaManager,
        producer_ids: ProducerIds,
    ) -> CoordinatorKinds:
        runtime, config = self._runtime, self._changes.current_config
        groups = coordinators.expect(
            CONSUMER_OFFSETS,
            lambda: coordinators_groups.add_groups(coordinators, runtime, config, lambda: cluster.image),
            lambda: coordinators_groups.add_groups,
        )
        shares = coordinators.expect(
            SHARE_GROUP_STATE,
            lambda: wiring.add_shares(coordinators, replicas, runtime, config, lambda: cluster.image),
            lambda: wiring.add_shares,
        )
        transactions = coordinators.expect(
            TRANSACTION_STATE,
            lambda: coordinators_transactions.coordinate_transactions(
                coordinators,
                groups,
                replicas,
                producer_ids,
                runtime.clock,
                config=config,
                # A topic that is missing is taken for deleted: one that is about to be shown must not be.
                image=lambda: replicas.newest_image or cluster.image,
            ),
            lambda: coordinators_transactions.coordinate_transactions,
        )
        return CoordinatorKinds(groups=groups, transactions=transactions, shares=shares)

    async def _listen(self, broker: BrokerContext) -> None:
        config = broker.config
        server = self._server = Server(
            dispatcher := Dispatcher(broker, self._handlers, broker.quotas),
            server_limits(config, self._runtime),
            now=self._runtime.clock.monotonic,
            turns=broker.turns,
        )
        server.pace = partial(_pace, broker)
        server.on_drained = self.background.return_free_memory
        broker.answer_room_bytes = server.answers.room_bytes
        broker.serve = dispatcher.serve
        advertised = {
            listener.name: (listener.host, listener.port) for listener in config.network.advertised_listeners
        }
        for listener in config.network.listeners:
            is_for_brokers = len(config.network.listeners) > 1 and listener.name in (
                config.network.inter_broker_listener_name,
                config.network.control_plane_listener_name,
            )
            opened = self._listeners.opened(
                listener.name,
                advertised.get(listener.name),
                dispatcher.handle,
                is_for_brokers=is_for_brokers,
            )
            port = await server.listen(opened, listener.host, listener.port)
            self.addresses.append((listener.host, port))

    async def stop(self, *, drain_seconds: float = _DRAIN_SECONDS) -> None:
        """Answer what is under way, make everything durable, mark the data as cleanly closed. Idempotent: the caller
        while it is under way waits for its end.

        A part that fails to stop keeps no other from stopping; what it raised is raised in the end.
        """
        async with self._ending:
            await self._stop(drain_seconds)

    async def _stop(self, drain_seconds: float) -> None:
        self._end_recurring_work()
        server, cluster, replicas = self._server, self._cluster, self._replicas
        registry, directories = self._registry, self._directories
        self._server = self._cluster = self._replicas = self._registry = self._directories = None
        async with AsyncExitStack() as ending:  # the last that is pushed is the first that ends
            if directories is not None:
                ending.callback(_log.info, "broker_stopped", node=self._config.server.node_id)
                ending.callback(directories.close)
            moves = None if self._context is None else self._context.moves
            if registry is not None:
                ending.push_async_callback(registry.close)
            ending.push_async_callback(self._note_clean_end)
            closing: list[_Closing | None] = [replicas, cluster, self._proposals, moves]
            for part in closing:
                if part is not None:
                    ending.push_async_callback(part.close)
            if self._producer_ids is not None:
                ending.callback(self._producer_ids.close)
            ending.push_async_callback(self.background.stop)
            if replicas is not None:
                ending.callback(replicas.maintenance.stop_compacting)
            ending.push_async_callback(self._end_audit)
            if server is not None:
                ending.push_async_callback(server.stop, drain_seconds=drain_seconds)
            ending.callback(
                self._coordinators.close
            )  # before that: a request that waits for a group would hold up the drain
            if self._kinds is not None and (shares := self._kinds.shares.existing_parts) is not None:
                ending.callback(shares.service.close)
            if (
                self._kinds is not None
                and (transactions := self._kinds.transactions.existing_parts) is not None
            ):
                ending.push_async_callback(transactions.service.close)
            if cluster is not None and drain_seconds > 0:
                ending.push_async_callback(cluster.leave)

    def _end_recurring_work(self) -> None:
        watch, self.loop_watch = self.loop_watch, None
        if watch is not None:
            watch.close()
        if self._recurring_work is not None:
            self._recurring_work.end()

    async def _note_clean_end(self) -> None:
        recurring_work, self._recurring_work = self._recurring_work, None
        if recurring_work is not None:
            await recurring_work.note_clean_end()

    async def _end_audit(self) -> None:
        trail, self._trail = self._trail, None
        if trail is not None:
            await trail.close()


def _pace(broker: BrokerContext, host: str) -> tuple[float, bool]:
    """Returns the time that a new connection must wait, and whether it is closed then (KIP-612)."""
    if not broker.quotas.limits_connections:
        return 0.0, False
    return broker.quotas.connection_from(host, broker.runtime.clock.monotonic())


def _check_configs(configs: object, config: BrokerConfig) -> None:
    topic_config(configs, config)  # type: ignore[arg-type]


def _blocks(cluster: ClusterLink, me: BrokerId) -> ControllerIdBlocks:
    return ControllerIdBlocks(
        me,
        lambda: cluster.image,
        lambda: cluster.controller.allocate_producer_ids(),
        lambda: cluster.send_to_control_plane,
    )


def _directory_id(directories: LogManager) -> str:
    identity = directories.all()[0].read_identity()
    assert identity is not None, "it was written when the directories were opened"
    return identity.directory_id
