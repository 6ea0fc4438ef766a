"""Topics that set the same share their settings, as far as a bounded memory of them goes."""

from __future__ import annotations

from odradek.broker.replicas import topic_configs
from odradek.broker.replicas.topic_configs import TopicConfigs
from odradek.config.broker import BrokerConfig
from odradek.config.loading import reconfigured

BROKER = BrokerConfig()


def test_topics_that_set_the_same_share_their_settings_in_whatever_order() -> None:
    configs = TopicConfigs()
    first = configs.of({"retention.ms": "7", "cleanup.policy": "compact"}, BROKER)
    assert (first.retention_ms, first.cleanup_policy) == (7, frozenset({"compact"}))
    assert configs.of({"cleanup.policy": "compact", "retention.ms": "7"}, BROKER) is first
    assert configs.of({"retention.ms": "8"}, BROKER).retention_ms == 8


def test_changed_settings_of_the_broker_are_inherited_at_once() -> None:
    configs = TopicConfigs()
    assert configs.of({}, BROKER).min_insync_replicas == 1
    changed = reconfigured(BROKER, {"min.insync.replicas": "2"}, {})
    assert configs.of({}, changed).min_insync_replicas == 2
    assert configs.of({}, BROKER).min_insync_replicas == 1


def test_many_settings_that_no_topic_has_any_more_are_forgotten() -> None:
    configs = TopicConfigs()
    old = configs.of({"retention.ms": "1"}, BROKER)
    for number in range(topic_configs.KEPT_MAX):
        configs.of({"retention.ms": str(number + 2)}, BROKER)
    assert configs.of({"retention.ms": "1"}, BROKER) is not old


def test_few_long_settings_are_forgotten_too_and_the_newest_is_kept() -> None:
    def throttled(first: int) -> dict[str, str]:
        pairs = ",".join(f"{number}:1" for number in range(first, first + 60_000))
        return {"leader.replication.throttled.replicas": pairs}

    assert len(throttled(0)["leader.replication.throttled.replicas"]) < topic_configs.KEPT_CHARACTERS_MAX
    configs = TopicConfigs()
    old = configs.of(throttled(0), BROKER)
    for number in (1, 2, 3):
        newest = configs.of(throttled(number), BROKER)
        assert configs.of(throttled(number), BROKER) is newest
    assert configs.of(throttled(0), BROKER) is not old
