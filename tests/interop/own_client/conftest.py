"""Tests that need Kafka 4 are skipped where `--server kafka` starts an older broker (`ODRADEK_PEER_VERSION=3.9.2`)."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest

_CONSUMER_PROTOCOL: Final = "the consumer protocol (KIP-848) is of Kafka 4.0"
_DEFAULT_PROTOCOL: Final = "the default is the consumer protocol where brokers have it"
_SHARE_GROUPS: Final = "share groups (KIP-932) are of Kafka 4.0"
_TOPIC_IDS: Final = "OffsetCommit has topic ids since Kafka 4.1: without, a late commit counts for the topic that is made again"
NEEDS_KAFKA_4: Final = {
    "*[[]consumer]": _CONSUMER_PROTOCOL,
    "*-consumer]": _CONSUMER_PROTOCOL,
    "*[[]epoch-per-transaction*": "the newer flow of transactions (KIP-890) is of Kafka 4.0",
    "test_admin_of_groups.py::test_features_have_levels": "transaction.version is of Kafka 4.0",
    "test_admin_of_groups.py::test_a_group_is_described_with_its_members[[]default]": _DEFAULT_PROTOCOL,
    "test_group_protocols.py::test_a_cluster_that_has_the_protocol_off*": _CONSUMER_PROTOCOL,
    "test_group_protocols.py::test_a_rolling_change_to_the_default*": _DEFAULT_PROTOCOL,
    "test_group_protocols.py::test_an_explicit_protocol_is_not_changed": _CONSUMER_PROTOCOL,
    "test_groups.py::test_a_second_member_under_the_same_instance_id_waits_for_the_first": _DEFAULT_PROTOCOL,
    "test_on_uvloop.py::test_a_share_group": _SHARE_GROUPS,
    "test_share_groups.py::*": _SHARE_GROUPS,
    "test_topics_made_again.py::test_a_share_consumer_reads_the_new_topic": _SHARE_GROUPS,
    "test_topics_made_again.py::test_consumer_producer_and_admin_go_on_with_the_new_topic*": _TOPIC_IDS,
}
"""Files and tests, and what Kafka 3 lacks for them. `test_kafka_3.py` shows what clients do without it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kind = config.getoption("--server", default=None) or os.environ.get("ODRADEK_INTEROP_SERVER")
    if kind != "kafka" or not os.environ.get("ODRADEK_PEER_VERSION", "").startswith("3."):
        return
    for test in items:
        if test.path.is_relative_to(Path(__file__).parent):
            for pattern, why in NEEDS_KAFKA_4.items():
                if fnmatchcase(f"{test.path.name}::{test.name}", pattern):
                    test.add_marker(pytest.mark.skip(reason=why))
