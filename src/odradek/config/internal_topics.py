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
    "Replicas of {}, when it is made; with fewer brokers it has as many replicas as there are brokers."
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


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopicConfig(ClusterConfig):
    """Kafka refuses to make a topic with more replicas than brokers, so with these defaults one broker has no groups. Here a
    topic that everything waits for is made with what there is.
    """

    offsets_topic_replication_factor: int = _copies(OFFSETS_COPIES, "__consumer_offsets")
    transaction_state_log_replication_factor: int = _copies(TRANSACTIONS_COPIES, "__transaction_state")
    share_coordinator_state_topic_replication_factor: int = _copies(SHARES_COPIES, "__share_group_state")
