"""What governs consumer groups: the broker's settings, their bounds, and a group's own."""

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.loading import load_broker_config
from odradek.groups.consumer.settings import ConsumerGroupSettings, MigrationPolicy
from odradek.model.errors import ConfigError


def config(**settings: str) -> BrokerConfig:
    return load_broker_config({key.replace("_", "."): value for key, value in settings.items()})[0]


def test_the_defaults_are_kafkas() -> None:
    assert ConsumerGroupSettings.of(BrokerConfig()) == ConsumerGroupSettings()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"group_consumer_heartbeat_interval_ms": "4000"}, "5000 to 15000"),
        ({"group_consumer_session_timeout_ms": "60001"}, "45000 to 60000"),
        ({"group_consumer_assignment_interval_ms": "15001"}, "0 to 15000"),
        (
            {
                "group_consumer_min_session_timeout_ms": "1",
                "group_consumer_session_timeout_ms": "5000",
            },
            "shorter than group.consumer.session.timeout.ms",
        ),
        ({"group_consumer_assignors": "uniform,magic"}, "one or more of uniform, range"),
        ({"group_consumer_assignors": ""}, "one or more of uniform, range"),
        ({"group_consumer_migration_policy": "sideways"}, "one of disabled"),
    ],
)
def test_what_contradicts_itself_is_refused_with_what_is_allowed(
    settings: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        config(**settings)


def test_kafkas_spelling_of_a_policy_is_not_asked_for() -> None:
    settings = ConsumerGroupSettings.of(config(group_consumer_migration_policy="UPGRADE"))
    assert settings.migration is MigrationPolicy.UPGRADE
    assert settings.migration.upgrades
    assert not settings.migration.downgrades


def test_a_groups_own_settings_stay_within_the_brokers_bounds() -> None:
    broker = config()
    own = {
        "consumer.heartbeat.interval.ms": "6000",
        "consumer.session.timeout.ms": "1000",
        "consumer.assignment.interval.ms": "99999",
    }
    settings = ConsumerGroupSettings.of(broker, own)
    assert settings.heartbeat_interval_ms == 6000
    assert settings.session_timeout_ms == 45_000
    assert settings.assignment_interval_ms == 15_000
    assert ConsumerGroupSettings.of(broker, {"share.session.timeout.ms": "1"}) == ConsumerGroupSettings()
