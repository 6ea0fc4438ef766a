"""How many copies the topics of the coordinators have: a part of `BrokerConfig` (`broker.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.config.cluster import ClusterConfig
from odradek.config.definition import Importance, Setting, SettingType, at_least, declare

OFFSETS_COPIES: Final = "offsets.topic.replication.factor"
TRANSACTIONS_COPIES: Final = "transaction.state.log.replication.factor"
SHARES_COPIES: Final = "share.coordinator.state.topic.replication.factor"

_MEANING: Final = (
    "Replicas of {}, when it is made. A broker alone makes it with one, and a smaller cluster with as many as there are "
    "brokers, unless this is set: then it waits for them."
)


def _copies(key: str, topic: str) -> int:
    copies: int = declare(
        Setting(
            key=key,
            type=SettingType.SHORT,
            default=3,
            meaning=_MEANING.format(topic),
            valid=at_least(1),
            importance=Importance.HIGH,
        )
    )
    return copies


def _in_sync(key: str, topic: str, type_: SettingType) -> int:
    replicas: int = declare(
        Setting(
            key=key,
            type=type_,
            default=2,
            meaning=f"min.insync.replicas of {topic}, when it is made; less where it has fewer replicas than it should.",
            valid=at_least(1),
            importance=Importance.HIGH,
        )
    )
    return replicas


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class InternalTopicConfig(ClusterConfig):
    """Kafka refuses to make a topic with more replicas than brokers, so with these defaults one broker has no groups. Here a
    topic that everything waits for is made with what there is.
    """

    offsets_topic_replication_factor: int = _copies(OFFSETS_COPIES, "__consumer_offsets")
    transaction_state_log_replication_factor: int = _copies(TRANSACTIONS_COPIES, "__transaction_state")
    share_coordinator_state_topic_replication_factor: int = _copies(SHARES_COPIES, "__share_group_state")
    transaction_state_log_min_isr: int = _in_sync(
        "transaction.state.log.min.isr", "__transaction_state", SettingType.INT
    )
    share_coordinator_state_topic_min_isr: int = _in_sync(
        "share.coordinator.state.topic.min.isr", "__share_group_state", SettingType.SHORT
    )
