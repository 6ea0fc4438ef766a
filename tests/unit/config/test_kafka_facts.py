"""Our tables against Kafka's own.

kafka_4_4_settings.json holds what the ConfigDef objects of Kafka 4.4.0 say when asked: names, types, defaults,
bounds and dynamic update modes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.config.broker import BROKER_SETTINGS
from odradek.config.definition import DynamicUpdate, Setting, SettingType
from odradek.config.topic import TOPIC_SETTINGS
from odradek.model.errors import ConfigError

DYNAMIC = dict(
    line.split()
    for line in Path(__file__).with_name("kafka_4_3_dynamic_settings.txt").read_text().splitlines()
)
"""Kafka 4.3.1's whole list: what `DynamicBrokerConfig.dynamicConfigUpdateModes()` says."""
FACTS: dict[str, Any] = json.loads(Path(__file__).with_name("kafka_4_4_settings.json").read_text())

OUR_DEFAULTS = {
    "node.id": "Kafka has none; a broker that runs with no argument needs one",
    "listeners": "loopback only, until the owner says otherwise",
    "socket.receive.buffer.bytes": "the kernel tunes it better, docs/decisions/0004",
    "socket.send.buffer.bytes": "the kernel tunes it better, docs/decisions/0004",
    "queued.max.request.bytes": "without a bound strangers fill the memory, docs/differences.md",
    "log.dir": "not /tmp, and it depends on the user",
}
NOT_REQUIRED = {"controller.listener.names"}
OUR_TYPES = {
    "listener.security.protocol.map": "a list in all but name",
}


def effective(table: dict[str, Setting], scope: str) -> list[str]:
    return sorted(key for key, setting in table.items() if setting.effective and key in FACTS[scope])


@pytest.mark.parametrize(("scope", "table"), [("broker", BROKER_SETTINGS), ("topic", TOPIC_SETTINGS)])
def test_every_setting_of_kafka_is_known(scope: str, table: dict[str, Setting]) -> None:
    assert set(FACTS[scope]) - set(table) == set()


@pytest.mark.parametrize("key", effective(BROKER_SETTINGS, "broker"))
def test_a_broker_setting_has_kafkas_type_and_default(key: str) -> None:
    fact, setting = FACTS["broker"][key], BROKER_SETTINGS[key]
    if key not in OUR_TYPES:
        assert setting.type is SettingType[fact["type"].upper()]
    if key not in OUR_DEFAULTS and key not in NOT_REQUIRED:
        assert setting.default_text == fact["default"]


@pytest.mark.parametrize("key", sorted(DYNAMIC))
def test_what_is_dynamic_in_kafka_is_taken_by_a_running_broker(key: str) -> None:
    assert BROKER_SETTINGS[key].dynamic.value == DYNAMIC[key]


def test_nothing_else_is_but_what_is_our_own_or_newer() -> None:
    more = {key for key, setting in BROKER_SETTINGS.items() if setting.dynamic is not DynamicUpdate.READ_ONLY}
    newer = {key for key, fact in FACTS["broker"].items() if fact["update"] != "read-only"}
    ours = {key for key in more if key.startswith("odradek.")} | {"log.flush.before.ack"}
    assert more == DYNAMIC.keys() | newer | ours


@pytest.mark.parametrize("key", sorted(set(TOPIC_SETTINGS) & set(FACTS["topic"])))
def test_a_topic_setting_has_kafkas_type_default_and_synonyms(key: str) -> None:
    fact, setting = FACTS["topic"][key], TOPIC_SETTINGS[key]
    assert setting.type is SettingType[fact["type"].upper()]
    assert setting.default_text == fact["default"]
    assert list(setting.synonyms) == FACTS["synonyms"].get(key, [])
    assert setting.internal == fact.get("internal", False)


@pytest.mark.parametrize(
    ("scope", "key"),
    [
        (scope, key)
        for scope, table in (("broker", BROKER_SETTINGS), ("topic", TOPIC_SETTINGS))
        for key in effective(table, scope)
        if "least" in FACTS[scope][key]
    ],
)
def test_bounds_are_kafkas(scope: str, key: str) -> None:
    fact = FACTS[scope][key]
    setting = (BROKER_SETTINGS if scope == "broker" else TOPIC_SETTINGS)[key]
    assert setting.parse(str(fact["least"])) == fact["least"]
    with pytest.raises(ConfigError, match=key):
        setting.parse(str(fact["least"] - 1))
    if "most" in fact:
        assert setting.parse(str(fact["most"])) == fact["most"]
        with pytest.raises(ConfigError, match=key):
            setting.parse(str(fact["most"] + 1))


def test_what_differs_from_kafka_is_documented() -> None:
    from odradek.config.document import document

    page = document()
    assert all(f"**`{key}`**" in page for key in OUR_DEFAULTS)
