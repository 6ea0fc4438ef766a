"""The settings of several brokers that are one cluster: a part of `BrokerConfig` (`broker.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.config.controller import ControllerConfig
from odradek.config.definition import Importance, Setting, SettingType, at_least, declare


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class ClusterConfig(ControllerConfig):
    """How a broker finds the others, and how they know that it lives."""

    registry_dir: str | None = declare(
        Setting(
            key="odradek.registry.dir",
            type=SettingType.STRING,
            default=None,
            meaning="The directory of the registry that brokers on one machine share. Not set: the first of log.dirs, so "
            "that a broker joins another one by naming that one's. Without effect where zookeeper.connect is set.",
            importance=Importance.HIGH,
        )
    )
    inter_broker_listener_name: str | None = declare(
        Setting(
            key="inter.broker.listener.name",
            type=SettingType.STRING,
            default=None,
            meaning="The listener that other brokers use. No other one serves what only brokers may ask, so keep clients "
            "away from its address. Not set: the first of listeners, and every listener serves brokers.",
        )
    )
    broker_session_timeout_ms: int = declare(
        Setting(
            key="broker.session.timeout.ms",
            type=SettingType.INT,
            default=9_000,
            meaning="How long a broker may be silent before others take over what it led; with zookeeper.connect, "
            "zookeeper.session.timeout.ms says so.",
            valid=at_least(1),
            importance=Importance.HIGH,
        )
    )
