"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: names, types, sources, synonyms, and bad values."""

from typing import Any

from tests.differential.asker import Asker
from tests.differential.requests import make_topic

from odradek.protocol.messages.configs.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from odradek.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig as Change,
)
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterConfigsResource as ChangedResource,
)
from odradek.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
BROKER_KEYS = (
    "auto.create.topics.enable",
    "broker.id",
    "broker.rack",
    "compression.type",
    "default.replication.factor",
    "delete.topic.enable",
    "group.consumer.assignors",
    "group.initial.rebalance.delay.ms",
    "log.cleanup.policy",
    "log.flush.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.segment.bytes",
    "max.connections",
    "message.max.bytes",
    "min.insync.replicas",
    "node.id",
    "num.partitions",
    "offsets.retention.minutes",
    "transaction.max.timeout.ms",
    "unclean.leader.election.enable",
)
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DYNAMIC = {
    "background.threads": "10",
    "group.consumer.assignment.interval.ms": "1000",
    "group.coordinator.cached.buffer.max.bytes": "1048588",
    "group.share.assignment.interval.ms": "1000",
    "leader.replication.throttled.rate": "100000",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.cleaner.backoff.ms": "15000",
    "num.io.threads": "8",
    "num.network.threads": "3",
    "num.partitions": "2",
    "num.recovery.threads.per.data.dir": "2",
    "num.replica.fetchers": "1",
    "producer.id.expiration.ms": "86400000",
    "replica.alter.log.dirs.io.max.bytes.per.second": "100000",
    "sasl.kerberos.service.name": "kafka",
    "transaction.partition.verification.enable": "true",
}
"""Settings that Kafka's running brokers take, some of them only one by one; and one that they do not."""


def script(peer: Asker) -> None:
    make_topic(peer, "cf-one", retention_ms="1000", cleanup_policy="compact")
    _describing(peer)
    _replacing(peer)
    _changing(peer)
    _changing_brokers(peer)


def describe(kind: int, name: str, *keys: str, **more: Any) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return DescribeConfigsRequest(resources=[resource], **more)


def _describing(peer: Asker) -> None:
    peer.ask("a topic", describe(TOPIC, "cf-one"))
    peer.ask("a topic with synonyms", describe(TOPIC, "cf-one", include_synonyms=True))
    peer.ask(
        "a topic with documentation",
        describe(TOPIC, "cf-one", "retention.ms", "cleanup.policy", include_documentation=True),
    )
    for version in (1, 2, 3):
        peer.ask(
            f"two keys, version {version}",
            describe(TOPIC, "cf-one", "retention.ms", "segment.bytes", include_synonyms=True),
            version,
        )
    peer.ask("an unknown key", describe(TOPIC, "cf-one", "no.such"))
    peer.ask("an unknown topic", describe(TOPIC, "cf-none"))
    peer.ask("a bad name", describe(TOPIC, "a b"))
    peer.ask("the broker", describe(BROKER, "1", *BROKER_KEYS))
    peer.ask(
        "the broker with synonyms",
        describe(
            BROKER,
            "1",
            "log.retention.ms",
            "log.retention.hours",
            "node.id",
            "num.partitions",
            include_synonyms=True,
        ),
    )
    peer.ask("all brokers' defaults", describe(BROKER, ""))
    peer.ask("an unknown broker", describe(BROKER, "9"))
    peer.ask("a broker whose name is no number", describe(BROKER, "one"))
    peer.ask("an unknown kind of resource", describe(99, "x"))
    peer.ask("kind 0", describe(0, "x"))
    peer.ask("a group", describe(GROUP, "cf-group", include_synonyms=True))
    peer.ask("a group without a name", describe(GROUP, ""))
    peer.ask("client metrics", describe(CLIENT_METRICS, "cf-metrics"))
    peer.ask("nothing", DescribeConfigsRequest(resources=[]))


def _settings(peer: Asker, step: str, expected: dict[str, str | None]) -> None:
    """Note the topic's own settings once they are as expected."""

    def own(response: Any) -> dict[str, set[str]]:
        return {
            config.name: words(config.value)
            for config in response.results[0].configs
            if config.config_source == 1
        }

    def words(value: str | None) -> set[str]:
        return set((value or "").split(","))

    wanted = {key: words(value) for key, value in expected.items()}
    peer.until(lambda reply: own(reply) == wanted, describe(TOPIC, "cf-one"))
    peer.ask(step, describe(TOPIC, "cf-one", *expected))


def _replacing(peer: Asker) -> None:
    def replace(
        kind: int, name: str, validate_only: bool = False, **settings: str | None
    ) -> AlterConfigsRequest:
        configs = [
            AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        return AlterConfigsRequest(resources=[resource], validate_only=validate_only)

    peer.ask("replacing, only tried", replace(TOPIC, "cf-one", True, retention_ms="5"))
    for version in (0, 1, 2):
        peer.ask(f"replacing, version {version}", replace(TOPIC, "cf-one", retention_ms="2000"), version)
    _settings(peer, "what replaced them", {"retention.ms": "2000"})
    peer.ask("replacing with an unknown key", replace(TOPIC, "cf-one", no_such="1"))
    peer.ask("replacing with a bad value", replace(TOPIC, "cf-one", retention_ms="soon"))
    peer.ask("replacing without a name", replace(TOPIC, "", retention_ms="1"))
    peer.ask("replacing with null", replace(TOPIC, "cf-one", retention_ms=None))
    peer.ask("replacing an unknown topic's", replace(TOPIC, "cf-none", retention_ms="1"))
    peer.ask("replacing an unknown broker's", replace(BROKER, "9", log_retention_ms="1"))
    peer.ask("replacing for an unknown kind", replace(99, "x", retention_ms="1"))


def change(
    kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    configs = [Change(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = ChangedResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def _changing(peer: Asker) -> None:
    for version in (0, 1):
        peer.ask(f"setting, version {version}", change(TOPIC, "cf-one", ("segment.ms", SET, "5000")), version)
    _settings(peer, "what was set beside it", {"retention.ms": "2000", "segment.ms": "5000"})
    peer.ask("appending to a list", change(TOPIC, "cf-one", ("cleanup.policy", APPEND, "compact")))
    _settings(
        peer,
        "what was appended",
        {"retention.ms": "2000", "segment.ms": "5000", "cleanup.policy": "delete,compact"},
    )
    peer.ask("subtracting from a list", change(TOPIC, "cf-one", ("cleanup.policy", SUBTRACT, "delete")))
    _settings(
        peer, "what was left", {"retention.ms": "2000", "segment.ms": "5000", "cleanup.policy": "compact"}
    )
    peer.ask(
        "deleting two", change(TOPIC, "cf-one", ("cleanup.policy", DELETE, None), ("segment.ms", DELETE, ""))
    )
    _settings(peer, "what was not deleted", {"retention.ms": "2000"})
    peer.ask("setting, only tried", change(TOPIC, "cf-one", ("segment.ms", SET, "5000"), validate_only=True))
    peer.ask("deleting what is not set", change(TOPIC, "cf-one", ("flush.ms", DELETE, None)))
    peer.ask("deleting an unknown key", change(TOPIC, "cf-one", ("no.such", DELETE, None)))
    peer.ask("appending to what is no list", change(TOPIC, "cf-one", ("retention.ms", APPEND, "1")))
    peer.ask("an operation that does not exist", change(TOPIC, "cf-one", ("retention.ms", 9, "1")))
    peer.ask("setting null", change(TOPIC, "cf-one", ("retention.ms", SET, None)))
    peer.ask("setting an unknown key", change(TOPIC, "cf-one", ("no.such", SET, "1")))
    peer.ask("setting a bad value", change(TOPIC, "cf-one", ("retention.ms", SET, "soon")))
    peer.ask("setting a value out of bounds", change(TOPIC, "cf-one", ("max.message.bytes", SET, "-1")))
    peer.ask(
        "setting bounds that contradict",
        change(TOPIC, "cf-one", ("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")),
    )
    peer.ask("one key twice", change(TOPIC, "cf-one", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")))
    peer.ask("an unknown topic's", change(TOPIC, "cf-none", ("retention.ms", SET, "1")))
    peer.ask("without a name", change(TOPIC, "", ("retention.ms", SET, "1")))
    peer.ask("for an unknown kind", change(99, "x", ("retention.ms", SET, "1")))
    peer.ask("changing nothing", IncrementalAlterConfigsRequest(resources=[]))


def _changing_brokers(peer: Asker) -> None:
    peer.ask(
        "setting one broker's",
        change(BROKER, "1", ("log.retention.ms", SET, "600000000"), validate_only=True),
    )
    peer.ask(
        "setting all brokers'", change(BROKER, "", ("log.retention.ms", SET, "600000000"), validate_only=True)
    )
    peer.ask("setting what needs a restart", change(BROKER, "1", ("log.dirs", SET, "/tmp/x")))
    peer.ask(
        "setting what only one broker may have for all",
        change(BROKER, "", ("listeners", SET, "PLAINTEXT://:1")),
    )
    for key, value in DYNAMIC.items():
        for_all = change(BROKER, "", (key, SET, value), validate_only=True)
        peer.ask(f"setting {key} of all brokers", for_all)
        for_one = change(BROKER, "1", (key, SET, value), validate_only=True)
        peer.ask(f"setting {key} of one broker", for_one)
    peer.ask("setting a broker's bad value", change(BROKER, "1", ("log.retention.ms", SET, "soon")))
    peer.ask("setting a broker's unknown key", change(BROKER, "1", ("no.such", SET, "1"), validate_only=True))
    peer.ask("setting an unknown broker's", change(BROKER, "9", ("log.retention.ms", SET, "1")))
    peer.ask("setting a group's", change(GROUP, "cf-group", ("consumer.session.timeout.ms", SET, "50000")))
    peer.ask(
        "setting a group's bad value", change(GROUP, "cf-group", ("consumer.session.timeout.ms", SET, "1"))
    )
    peer.ask("setting a group's unknown key", change(GROUP, "cf-group", ("no.such", SET, "1")))
