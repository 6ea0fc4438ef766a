"""What a running broker takes, beside Kafka's own list; and that defaults that are not Kafka's are documented.

Types, defaults, bounds and synonyms are compared by `tests/contract/parity`, but for settings without effect.
"""

from __future__ import annotations

from functools import cache

import pytest
from tests.contract.parity.reasons import REASONS
from tests.contract.parity.recording import recorded

from odradek.config.broker import BROKER_SETTINGS
from odradek.config.definition import DynamicUpdate
from odradek.config.document import document

THROTTLES = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Dynamic settings that Kafka has apart from its table (`QuotaConfig.brokerQuotaConfigs`)."""


@cache
def update_modes() -> dict[str, str]:
    """Returns the dynamic settings of Kafka's brokers: what `DynamicBrokerConfig.dynamicConfigUpdateModes()` says."""
    _, facts = recorded()
    settings = facts["broker setting"]
    return {key: about["update"] for key, about in settings.items() if about["update"] != "read-only"}


@pytest.mark.parametrize("key", sorted(update_modes()))
def test_what_is_dynamic_in_kafka_is_taken_by_a_running_broker(key: str) -> None:
    assert BROKER_SETTINGS[key].dynamic.value == update_modes()[key]


def test_nothing_else_is_dynamic_but_what_kafkas_table_does_not_have() -> None:
    _, facts = recorded()
    dynamic = {
        key for key, setting in BROKER_SETTINGS.items() if setting.dynamic is not DynamicUpdate.READ_ONLY
    }
    in_the_table = {key for key in dynamic if key in facts["broker setting"]}
    assert in_the_table == update_modes().keys()
    others = {key for key in dynamic - in_the_table if not key.startswith("odradek.")}
    assert others == {"log.flush.before.ack", *THROTTLES}
    assert {BROKER_SETTINGS[key].dynamic for key in THROTTLES} == {DynamicUpdate.CLUSTER_WIDE}


def test_defaults_that_differ_from_kafkas_are_documented() -> None:
    page = document()
    ours = next(reason for reason in REASONS if reason.title.startswith("Defaults"))
    keys = [place.partition("/")[2].removesuffix(": default") for place in ours.places]
    assert keys
    assert [key for key in keys if f"**`{key}`**" not in page] == ["controller.listener.names"]
