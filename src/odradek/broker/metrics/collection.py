"""One scrape of a broker: all of its families, read on the event loop in turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.metrics.end_history import EndHistory
from odradek.broker.metrics.expiry_families import of_certificates, of_delegation_tokens
from odradek.broker.metrics.group_families import GroupFamilies
from odradek.broker.metrics.partition_families import PartitionFamilies, is_led_as_preferred
from odradek.broker.metrics.server_families import IdleShare, ServerFamilies, of_flushes
from odradek.broker.metrics.transaction_families import TransactionFamilies
from odradek.broker.requests.context import BrokerContext
from odradek.cluster.image import NO_LEADER
from odradek.config.listening.listeners import format_address
from odradek.model.version import __version__
from odradek.replication.leader_role import IsrCounts
from odradek.runtime.real_loop_watch import BUCKETS_S, LoopWatch
from odradek.telemetry.metrics import Family, Histogram, counter, gauge, histogram, labels

if TYPE_CHECKING:
    from odradek.broker.instruments.record_traces import RecordTraces
    from odradek.net.server import Server
    from odradek.runtime.turns import Turns
    from odradek.security.tls.listener_tls import ListenerCertificates

_RUNNING: Final = 3
"""Kafka's number of the state in which a broker serves."""


_PARTITIONS_TOGETHER: Final = 256
"""The partitions of one step, which only their states are read of."""


class MeasuredBroker(Protocol):
    """A broker process's parts that its metrics read (`broker/app.py`)."""

    traces: RecordTraces | None

    @property
    def is_serving(self) -> bool: ...

    @property
    def context(self) -> BrokerContext:
        """The parts of the broker, once started."""

    @property
    def server(self) -> Server:
        """The server of all listeners, while the broker serves."""

    @property
    def addresses(self) -> Sequence[tuple[str, int]]: ...

    @property
    def certificates(self) -> Mapping[str, ListenerCertificates]: ...

    @property
    def turns(self) -> Turns: ...

    @property
    def isr_counts(self) -> IsrCounts: ...

    @property
    def loop_watch(self) -> LoopWatch | None: ...


class MetricsCollection:
    """Collects scrapes. Keeps between them what no part of the broker knows: when partitions grew."""

    def __init__(self, broker: MeasuredBroker) -> None:
        self._broker = broker
        self._ends = EndHistory()
        self._idle = IdleShare()

    async def collected(self) -> list[Family]:
        """Families in the order of their worth: what the bound of series leaves out comes last. Called on the loop."""
        broker, context = self._broker, self._broker.context
        turn = broker.turns.begin()
        groups = GroupFamilies(context, self._ends)
        await groups.collect(turn)
        server = ServerFamilies(broker.server, context)
        await server.collect(turn)
        transactions = TransactionFamilies(context)
        await transactions.collect(turn)
        partitions = PartitionFamilies(context)
        controller = ControllerFamilies(context, partitions)
        for steps in (partitions.steps(), controller.steps()):
            for _ in steps:
                await turn.step()
        traffic = await turn.drive(context.traffic.steps())
        of_clients = await turn.drive(context.client_telemetry.families())
        return [
            *of_process(broker),
            *partitions.totals(),
            *controller.families(),
            *context.elections.families(),
            *of_isr_counts(broker.isr_counts),
            *self._idle.families(context.runtime.clock.monotonic()),
            *server.families(),
            *of_flushes(context),
            *([] if context.traces is None else context.traces.families()),
            *transactions.families(),
            *context.requests.families(),
            *of_directories(context),
            of_certificates(broker.certificates, context.runtime.clock.wall_ms() / 1_000),
            *of_delegation_tokens(context),
            *groups.totals(),
            *traffic,
            *groups.of_partitions(),
            *partitions.of_partitions(),
            *of_clients,
        ]


def of_isr_counts(counts: IsrCounts) -> list[Family]:
    """Returns changes of in-sync replicas, by the names of Kafka's ReplicaManager."""
    families = []
    for name, meaning, value in (
        ("isrshrinks", "Times that replicas left an ISR led here.", counts.shrinks),
        ("isrexpands", "Times that replicas joined an ISR led here.", counts.expands),
        ("failedisrupdates", "Changes of an ISR that the controller refused.", counts.failed_updates),
    ):
        family = counter(f"kafka_server_replicamanager_{name}", meaning)
        family.add(value)
        families.append(family)
    return families


class ControllerFamilies:
    """Collects the controller's view of the cluster. Other brokers report 0 for it, so that sums are right."""

    def __init__(self, broker: BrokerContext, partitions: PartitionFamilies) -> None:
        self._broker = broker
        self._partitions = partitions
        self._topic_sizes = gauge("kafka_topic_partitions", "Partitions of a topic.")
        self._brokers = gauge("kafka_brokers", "Brokers of the cluster.")
        self._broker_info = gauge("kafka_broker_info", "A broker of the cluster, and its address; always 1.")
        self._totals: list[Family] = []

    def steps(self) -> Iterator[None]:
        """Collects the figures, with a step for some partitions: a topic may have very many."""
        leads = self._broker.cluster.leads
        image = self._broker.image
        offline = imbalanced = count = 0
        for topic in list(image.topics.values()) if leads else ():
            count += len(topic.partitions)
            self._topic_sizes.add(len(topic.partitions), labels(topic=topic.name))
            for first in range(0, len(topic.partitions), _PARTITIONS_TOGETHER):
                states = topic.partitions[first : first + _PARTITIONS_TOGETHER]
                offline += sum(state.leader == NO_LEADER for state in states)
                imbalanced += sum(not is_led_as_preferred(state) for state in states)
                self._partitions.add_leaderless(topic.name, states, first)
                yield
        if leads:
            self._brokers.add(len(image.brokers))
            for member in image.brokers:
                address = format_address(member.host, member.port)
                self._broker_info.add(1, labels(id=member.broker_id, address=address))
        bean = "kafka_controller_kafkacontroller_"
        for name, meaning, value in (
            ("activecontrollercount", "1 on the broker that is the controller.", int(leads)),
            ("offlinepartitionscount", "Partitions without a leader.", offline),
            ("preferredreplicaimbalancecount", "Partitions that others than the first replica lead.", imbalanced),
            ("globaltopiccount", "Topics of the cluster.", len(image.topics) if leads else 0),
            ("globalpartitioncount", "Partitions of the cluster.", count),
            ("activebrokercount", "Brokers of the cluster.", len(image.brokers) if leads else 0),
        ):  # fmt: skip
            family = gauge(f"{bean}{name}", meaning)
            family.add(value)
            self._totals.append(family)

    def families(self) -> list[Family]:
        return [*self._totals, *self._of_healing(), self._brokers, self._broker_info, self._topic_sizes]

    def _of_healing(self) -> list[Family]:
        """Returns what the controller plans to make again of dead brokers, and what it makes now."""
        due = gauge(
            "odradek_controller_healing_due_seconds",
            "Time until the replicas of a dead broker are made on others, in seconds.",
        )
        under_way = gauge(
            "odradek_controller_healing_partitions",
            "Partitions whose lost replicas are being made on others.",
        )
        if self._broker.cluster.leads:
            plan = self._broker.cluster.controller.healing_plan()
            for broker, due_s in plan.due_s.items():
                due.add(due_s, labels(broker=broker))
            under_way.add(plan.partition_count)
        return [due, under_way]


def of_process(broker: MeasuredBroker) -> list[Family]:
    """Returns the families of the broker as a whole: what it is, its connections, and how often something held its loop."""
    info = gauge("odradek_build_info", "The version of this broker; always 1.")
    info.add(1, labels(version=__version__))
    connections = gauge("odradek_server_connections", "Open connections to this broker.")
    connections.add(broker.server.connection_count)
    state = gauge("kafka_server_kafkaserver_brokerstate", "3: the broker runs.")
    state.add(_RUNNING)
    families = [info, connections, state]
    if broker.loop_watch is not None:
        counts = broker.loop_watch.counts
        held_times = Histogram(BUCKETS_S)
        held_times.counts, held_times.total = list(counts.buckets), counts.seconds
        family = histogram(
            "odradek_event_loop_held_seconds",
            "Times for which something held the event loop longer than odradek.loop.held.warn.ms.",
        )
        family.add(held_times)
        families.append(family)
    return families


def of_directories(broker: BrokerContext) -> list[Family]:
    """Returns the families of the data directories: whether they can be used, and their disks."""
    offline = gauge("kafka_log_logmanager_offlinelogdirectorycount", "Data directories that cannot be used.")
    offline_replicas = gauge(
        "kafka_server_replicamanager_offlinereplicacount", "Replicas that should be here and cannot be used."
    )
    is_online = gauge("odradek_log_directory_online", "1 if a data directory can be used.")
    usable = gauge(
        "odradek_log_directory_usable_bytes", "Bytes that can still be written to a directory's disk."
    )
    total = gauge("odradek_log_directory_total_bytes", "Bytes of a directory's disk.")
    troubled = gauge(
        "odradek_log_directory_troubled", "1 if a directory's disk is full or slow, as `condition` says."
    )
    failed = 0
    for directory in broker.replicas.directories.all():
        text = labels(directory=directory.path)
        failed += directory.offline is not None
        is_online.add(int(directory.offline is None), text)
        if directory.offline is None:
            total_bytes, usable_bytes = directory.space()
            total.add(total_bytes, text)
            usable.add(usable_bytes, text)
            for condition, is_so in (
                ("full", directory.condition.is_full),
                ("slow", directory.condition.is_slow),
            ):
                troubled.add(int(is_so), labels(directory=directory.path, condition=condition))
    offline.add(failed)
    offline_replicas.add(len(broker.replicas.health.offline))
    return [offline, offline_replicas, is_online, usable, total, troubled]
