"""Odradek answers as Apache Kafka did, field by field, but for what `allowed.py` explains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.odradek_node import OdradekNode
from tests.differential import comparison
from tests.differential.allowed import ALLOWED

ALONE = {"share_groups"}
"""It makes an internal topic that others expect not to exist, and scripts run in any order here."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with OdradekNode(settings=comparison.SETTINGS) as node:
        yield node.bootstrap


@pytest.mark.parametrize("script", comparison.SCRIPTS)
def test_odradek_answers_as_kafka_did(script: str, bootstrap: str) -> None:
    if script in ALONE or comparison.has_own_broker(script):
        with OdradekNode(settings=comparison.settings_of(script)) as node:
            steps = comparison.run(script, node.bootstrap)
    else:
        steps = comparison.run(script, bootstrap)
    unexplained, needed = [], []
    for difference in comparison.compare(script, comparison.recorded(script), steps):
        allowed = comparison.allowance(difference)
        if allowed is None:
            unexplained.append(difference)
        else:
            needed.append(allowed)
    assert not unexplained, "\n".join(["", *map(str, unexplained)])
    unneeded = [
        allowance
        for allowance in comparison.allowances_of(script)
        if allowance not in needed and not allowance.gap
    ]
    assert not unneeded


def test_every_allowed_difference_names_a_script_and_says_why() -> None:
    for allowed in ALLOWED:
        assert allowed.script in (*comparison.SCRIPTS, "*: *error_message"), allowed
        assert allowed.why.endswith("."), allowed
