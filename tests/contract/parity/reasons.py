"""Where we differ from Kafka, and why: the only table of it. Nothing else may differ.

A place is a pattern over `section/item` or `section/item: attribute`, as `python -m tests.contract.parity` prints it. A pattern
that no difference needs any more fails a test. The reasons stand in docs/compatibility.md, in these words. Those of settings
without effect come from `odradek.config.unsupported`, which also words the broker's warnings.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from odradek.config.unsupported import AREAS, NOT_YET


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    title: str
    """What differs, in a few words."""
    places: tuple[str, ...]
    why: str
    is_gap: bool = False
    """Kafka has something that we still lack, and not on purpose."""

    def explains(self, place: str) -> bool:
        return any(fnmatchcase(place, pattern) for pattern in self.places)


def _settings(scope: str, keys: str, *endings: str) -> tuple[str, ...]:
    """Returns places of settings; `keys` are separated by white space. Without endings, the settings as a whole."""
    return tuple(f"{scope} setting/{key}{ending}" for key in keys.split() for ending in (endings or ("",)))


def _apis(*names: str) -> tuple[str, ...]:
    return tuple(place for name in names for place in (f"api/{name}", f"message/{name}Re[qs]*"))


_QUORUM: Final = Reason(
    title="Between the brokers and controllers of a KRaft quorum",
    places=_apis(
        "AssignReplicasToDirs",
        "BeginQuorumEpoch",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "ControllerRegistration",
        "EndQuorumEpoch",
        "Envelope",
        "FetchSnapshot",
        "UpdateRaftVoter",
        "Vote",
    ),
    why="Brokers are coordinated by a registry, not by a KRaft quorum; clients never send these",
)

_ADMIN: Final = (
    Reason(
        title="Voters and controllers",
        places=("admin/addRaftVoter", "admin/removeRaftVoter", "admin/unregisterController"),
        why="A cluster of ours has no voters; use Kafka's admin client for a cluster that has them",
    ),
    Reason(
        title="Metrics of the admin client itself",
        places=(
            "admin/clientInstanceId",
            "admin/metrics",
            "admin/registerMetricForSubscription",
            "admin/unregisterMetricFromSubscription",
        ),
        why="Producers and consumers have metrics; an admin client is too short-lived to be measured",
    ),
)

_FEATURES: Final = (
    Reason(
        title="Eligible leader replicas",
        places=("feature/eligible.leader.replicas.version: min",),
        why="They are always on: `min.insync.replicas` promises nothing without them",
    ),
    Reason(
        title="Levels of metadata.version",
        places=("feature/metadata.version: min", "release/4.[0-9]-IV[0-9]"),
        why="There is no metadata log whose format could change: one level, that of the release whose API this is",
    ),
    Reason(
        title="The level of kraft.version",
        places=("release/*: kraft.version",),
        why="It is 0 until it is raised, as in a cluster of Kafka with a fixed quorum",
    ),
)

_SETTINGS: Final = (
    Reason(
        title="Settings of our own",
        places=_settings(
            "broker",
            """odradek.* log.flush.before.ack max.request.elements metrics.listeners queued.max.response.bytes
            sasl.oauthbearer.header.urlencode""",
        )
        + _settings("topic", "flush.before.ack"),
        why="Kafka has nothing like them; docs/configuration.md explains them",
    ),
    Reason(
        title="Settings that Kafka reads elsewhere, or had before KRaft",
        places=_settings(
            "broker",
            """allow.everyone.if.no.acl.found super.users leader.replication.throttled.rate
            follower.replication.throttled.rate control.plane.listener.name
            leader.imbalance.per.broker.percentage zookeeper.*""",
        ),
        why="The authorizer's and the throttles' settings are no part of Kafka's table; those of ZooKeeper have effect here",
    ),
    Reason(
        title="Defaults that suit a broker without a file",
        places=_settings(
            "broker",
            "listeners log.dir node.id socket.receive.buffer.bytes socket.send.buffer.bytes",
            ": default",
        )
        + _settings("broker", "queued.max.request.bytes controller.listener.names", ": default"),
        why="Listens on loopback, keeps data outside /tmp, leaves buffers to the system and bounds memory; docs/differences.md",
    ),
    Reason(
        title="An empty value",
        places=_settings(
            "broker",
            "advertised.listeners controller.listener.names listeners log.dir log.dirs",
            ": accepts ''",
        ),
        why="It is taken for a value that is not set",
    ),
    Reason(
        title="Numbers that cannot work",
        places=_settings(
            "broker",
            """broker.session.timeout.ms default.replication.factor group.initial.rebalance.delay.ms
            group.m??.session.timeout.ms log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor
            log.cleaner.io.max.bytes.per.second log.flush.interval.ms log.flush.scheduler.interval.ms
            log.retention.hours log.retention.minutes log.retention.ms log.roll.jitter.ms log.roll.ms
            offset.metadata.max.bytes replica.fetch.min.bytes replica.fetch.wait.max.ms
            replica.lag.time.max.ms replica.socket.timeout.ms sasl.login.retry.backoff.max.ms
            sasl.login.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds
            sasl.oauthbearer.jwks.endpoint.* sasl.server.max.receive.size socket.receive.buffer.bytes
            socket.send.buffer.bytes""",
            ": accepts '*",
        )
        + _settings("topic", "internal.segment.bytes", ": accepts '*")
        + _settings("client-metrics", "interval.ms", ": accepts '*"),
        why="They are refused when they are set. Kafka's table lets them through: a later check refuses some, with others "
        "the broker fails while it runs",
    ),
    Reason(
        title="Names that do not exist",
        places=_settings(
            "broker",
            """group.consumer.assignors group.streams.assignors replica.selector.class
            sasl.enabled.mechanisms ssl.enabled.protocols ssl.endpoint.identification.algorithm
            ssl.keystore.type ssl.truststore.type""",
            ": accepts 'no such value'",
        )
        + _settings("broker", "replica.selector.class ssl.keystore.type ssl.truststore.type", ": accepts ''")
        + _settings("group", "errors.deadletterqueue.topic.name", ": accepts 'no such value'"),
        why="They are refused when they are set. Kafka loads a class of that name, or fails when it uses the value",
    ),
    Reason(
        title="Settings that Kafka keeps to itself",
        places=_settings(
            "broker",
            """group.streams.acceptable.recovery.lag group.streams.min.task.offset.interval.ms
            group.streams.task.offset.interval.ms share.coordinator.cold.partition.snapshot.interval.ms
            share.coordinator.state.topic.prune.interval.ms unstable.api.versions.enable""",
            ": internal",
        ),
        why="They have effect, so docs/configuration.md has them",
    ),
    Reason(
        title="A list that Kafka calls a text",
        places=_settings("broker", "listener.security.protocol.map", ": type"),
        why="Both take the same text; DescribeConfigs names the type",
    ),
    Reason(
        title="Assignors on threads of their own",
        places=_settings(
            "group",
            "consumer.assignor.offload.enable share.assignor.offload.enable streams.assignor.offload.enable",
        ),
        why="An assignment is made in slices between other work of the event loop; Kafka keeps these settings to itself",
    ),
    Reason(
        title="Warm-up tasks of streams groups",
        places=_settings("group", "streams.num.warmup.replicas"),
        why="Kafka 4.4 keeps the setting to itself, and gives no member a warm-up task: its refiner of assignments "
        "returns what the assignor made (KAFKA-20665)",
    ),
    Reason(
        title="The assignor of a streams group",
        places=_settings("group", "streams.assignor.name", ": accepts*", ": default"),
        why="There is one, `sticky`; the broker's list of them cannot name another",
    ),
    Reason(
        title="Tiered storage of a topic",
        places=_settings(
            "topic",
            """local.retention.bytes local.retention.ms remote.copy.lag.bytes remote.copy.lag.ms
            remote.log.copy.disable remote.log.delete.on.disable""",
        )
        + _settings("topic", "remote.storage.enable", ": accepts 'true'")
        + _settings(
            "broker",
            "log.local.retention.bytes log.local.retention.ms log.remote.copy.lag.bytes log.remote.copy.lag.ms",
        ),
        why="There is no tiered storage",
    ),
    Reason(
        title="Files that take their full size at once",
        places=_settings("topic", "preallocate") + _settings("broker", "log.preallocate"),
        why="File systems of today gain nothing by it, and a crash would leave zeros among records",
    ),
)


def _without_effect() -> tuple[Reason, ...]:
    return tuple(
        Reason(
            title=area.name,
            places=_settings("broker", area.keys),
            why=_sentence(area.reason),
            is_gap=area.reason == NOT_YET,
        )
        for area in AREAS
    )


def _sentence(reason: str) -> str:
    text = (
        reason.removeprefix("has no effect: ").replace(" and has no effect", "").replace("is not", "Not", 1)
    )
    is_key = "." in text.split()[0]
    return text if is_key else text[0].upper() + text[1:]


REASONS: Final = (_QUORUM, *_ADMIN, *_FEATURES, *_SETTINGS)
"""Written here."""
REASONS_OF_UNSUPPORTED: Final = _without_effect()
"""Those of settings without effect. They also have keys that Kafka has no more, for which there is no difference."""
