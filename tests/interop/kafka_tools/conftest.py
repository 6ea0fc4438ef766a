"""Kafka's tools, in one JVM for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.peer import PeerAbsentError, cached_peer
from tests.interop.kafka_tools.tools import Tools


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    try:
        jars = cached_peer()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    with Tools(jars, tmp_path_factory.mktemp("tools")) as running:
        yield running
