"""The settings of what the controller does unasked: a part of `BrokerConfig` (`broker.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.config.definition import Importance, Setting, SettingType, Update, at_least, declare
from odradek.config.replication import ReplicationConfig


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class ControllerConfig(ReplicationConfig):
    """When leadership goes back to preferred leaders, when lost replicas are made again, and where."""

    auto_leader_rebalance_enable: bool = declare(
        Setting(
            key="auto.leader.rebalance.enable",
            type=SettingType.BOOLEAN,
            default=True,
            meaning="Whether preferred leaders, the first replicas of each partition, are made leaders again after a while.",
            importance=Importance.HIGH,
        )
    )
    leader_imbalance_check_interval_seconds: int = declare(
        Setting(
            key="leader.imbalance.check.interval.seconds",
            type=SettingType.LONG,
            default=300,
            meaning="How often the controller looks for partitions that are not led by their preferred leader.",
            valid=at_least(1),
            importance=Importance.HIGH,
        )
    )
    leader_imbalance_per_broker_percentage: int = declare(
        Setting(
            key="leader.imbalance.per.broker.percentage",
            type=SettingType.INT,
            default=10,
            meaning="How many of a broker's preferred partitions others may lead, in percent, before it gets them back.",
            importance=Importance.HIGH,
        )
    )
    odradek_healing_delay_ms: int = declare(
        Setting(
            key="odradek.healing.delay.ms",
            type=SettingType.LONG,
            default=1_800_000,
            meaning="How long a broker may be dead before its replicas are made again on other brokers; -1 for never. "
            "They are copied whole, so this should be longer than a restart takes.",
            valid=at_least(-1),
            dynamic=Update.CLUSTER_WIDE,
        )
    )
    odradek_healing_partitions_max: int = declare(
        Setting(
            key="odradek.healing.partitions.max",
            type=SettingType.INT,
            default=20,
            meaning="How many partitions are made again at one time.",
            valid=at_least(1),
            dynamic=Update.CLUSTER_WIDE,
        )
    )
    odradek_broker_cordoned: bool = declare(
        Setting(
            key="odradek.broker.cordoned",
            type=SettingType.BOOLEAN,
            default=False,
            meaning="Whether this broker gets no new replicas. What it holds stays, until it is moved.",
            dynamic=Update.PER_BROKER,
        )
    )
