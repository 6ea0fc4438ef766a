"""No test leaves a client open: a fixture, for the folders that import it in their `conftest.py`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

CLIENT_THREADS = frozenset({"odradek-admin", "odradek-consumer", "odradek-producer", "odradek-view"})
END_OF_THREAD_S = 10.0


@pytest.fixture(autouse=True)
def clients_are_closed() -> Iterator[None]:
    """A client that stays open has a thread and three descriptors. With 1024 of them `select` fails, in py4j for example.

    Clients of wider fixtures were there before; the idle ones that Spark tasks share in this process are closed here.
    """
    before = set(threading.enumerate())
    yield
    connections = sys.modules.get("odradek.spark.clients.connections")
    if connections is not None:
        connections.close_idle()
    left_open = []
    for thread in set(threading.enumerate()) - before:
        if thread.name in CLIENT_THREADS:
            thread.join(END_OF_THREAD_S)  # it may be about to end
            if thread.is_alive():
                left_open.append(thread.name)
    assert not left_open, f"clients that the test did not close: {', '.join(sorted(left_open))}"
