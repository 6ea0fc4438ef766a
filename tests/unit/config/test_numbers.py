"""Every setting that is a number reads what Kafka reads, and refuses what Python alone would read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.hostile_numbers import NO_REAL, NO_WHOLE

from odradek.client.settings import settings as client_settings
from odradek.config.broker import BROKER_SETTINGS
from odradek.config.client_metrics import CLIENT_METRICS_SETTINGS
from odradek.config.definition import Setting, SettingType
from odradek.config.topic import TOPIC_SETTINGS
from odradek.model.errors import ConfigError

_NUMBERS = (SettingType.SHORT, SettingType.INT, SettingType.LONG, SettingType.DOUBLE)
_TABLES: dict[str, dict[str, Setting]] = {
    "broker": BROKER_SETTINGS,
    "topic": TOPIC_SETTINGS,
    "client metrics": CLIENT_METRICS_SETTINGS,
    "admin": dict(client_settings.AdminSettings.settings),
    "consumer": dict(client_settings.ConsumerSettings.settings),
    "share consumer": dict(client_settings.ShareConsumerSettings.settings),
    "producer": dict(client_settings.ProducerSettings.settings),
}
SETTINGS = {
    f"{name} {key}": setting
    for name, table in _TABLES.items()
    for key, setting in table.items()
    if setting.type in _NUMBERS
}


def _written(setting: Setting) -> str:
    """A number that the setting accepts."""
    candidates: list[Any] = [setting.default, 1, 100, 1_000_000, -1, 0.5]
    return next(
        str(n) for n in candidates if n is not None and (setting.valid is None or setting.valid.accepts(n))
    )


def _is_finite(text: str) -> bool:
    """Java reads too large a number as Infinity."""
    return text not in ("1e999", "9" * 5_000)


@pytest.mark.parametrize("key", SETTINGS)
def test_what_java_does_not_read_is_refused(key: str) -> None:
    setting = SETTINGS[key]
    for text in [*filter(_is_finite, NO_REAL)] if setting.type is SettingType.DOUBLE else NO_WHOLE:
        with pytest.raises(ConfigError) as refused:
            setting.parse(text)
        assert setting.key in str(refused.value)
        assert "expected" in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", SETTINGS)
def test_what_kafka_reads_is_read(key: str) -> None:
    setting, text = SETTINGS[key], _written(SETTINGS[key])
    signed = text if text.startswith("-") else f"+{text}"
    assert setting.parse(text) == setting.parse(f" \t{text}\r\n") == setting.parse(signed)
