"""Tests that need Kafka 4 are skipped where `--server kafka` starts an older broker (`ODRADEK_PEER_VERSION=3.9.2`)."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest

NEEDS_KAFKA_4: Final = {
    "*[[]consumer]": "the consumer protocol (KIP-848) is of Kafka 4.0",
    "*-consumer]": "the consumer protocol (KIP-848) is of Kafka 4.0",
    "test_a_group_is_described_with_its_members[[]default]": "the default is the consumer protocol where brokers have it",
    "*[[]epoch-per-transaction*": "the newer flow of transactions (KIP-890) is of Kafka 4.0",
    "test_a_share_consumer_reads_the_new_topic": "share groups (KIP-932) are of Kafka 4.0",
    "test_features_have_levels": "transaction.version is of Kafka 4.0",
}
"""Names of tests, and what Kafka 3 lacks for them. `test_kafka_3.py` shows what clients do without it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kind = config.getoption("--server", default=None) or os.environ.get("ODRADEK_INTEROP_SERVER")
    if kind != "kafka" or not os.environ.get("ODRADEK_PEER_VERSION", "").startswith("3."):
        return
    for test in items:
        if test.path.is_relative_to(Path(__file__).parent):
            for pattern, why in NEEDS_KAFKA_4.items():
                if fnmatchcase(test.name, pattern):
                    test.add_marker(pytest.mark.skip(reason=why))
