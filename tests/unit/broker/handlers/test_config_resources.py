"""Changes to settings that are lists."""

from __future__ import annotations

import pytest

from odradek.broker.handlers.config_resources import TOPIC, Operation, incremental
from odradek.protocol.messages.configs.incremental_alter_configs import AlterableConfig


def changed(operation: Operation, before: str, value: str) -> str:
    entry = AlterableConfig(name="cleanup.policy", config_operation=operation, value=value)
    return incremental([entry], TOPIC)({"cleanup.policy": before})["cleanup.policy"]


@pytest.mark.parametrize(
    ("operation", "before", "value", "after"),
    [
        (Operation.APPEND, "delete", "compact", "delete,compact"),
        (Operation.APPEND, "delete", " compact, delete,compact", "delete,compact"),
        (Operation.SUBTRACT, "delete,compact", "delete,delete", "compact"),
        (Operation.SUBTRACT, "delete", "compact", "delete"),
    ],
)
def test_items_of_a_list_are_added_once_and_taken_out(operation, before, value, after):
    assert changed(operation, before, value) == after
