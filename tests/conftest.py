"""What holds for every test: no disk may hold up an event loop, garbage is collected, and clients are closed."""

import gc
import sys
import threading
from collections.abc import Iterator

import pytest

from odradek.runtime import real
from odradek.testing import guarded_disk
from odradek.testing.guarded_disk import GuardedDisk

CLIENT_THREADS = frozenset({"odradek-admin", "odradek-consumer", "odradek-producer", "odradek-view"})
END_OF_THREAD_S = 10.0


@pytest.fixture(autouse=True)
def loop_keeps_off_the_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runtimes of this machine get a disk that refuses what blocks on an event loop; worlds of the simulator have one."""
    disk = real.PosixDisk
    monkeypatch.setattr(real, "PosixDisk", lambda: GuardedDisk(disk()))
    guarded_disk.violations.clear()
    yield
    violations = list(guarded_disk.violations)
    guarded_disk.violations.clear()
    assert not violations, "\n".join(violations)


@pytest.fixture(autouse=True)
def garbage_collector_stays_on() -> Iterator[None]:
    """A test that leaves it off costs those behind it memory, descriptors and time, in the same process."""
    yield
    enabled = gc.isenabled()
    gc.enable()
    assert enabled, "the garbage collector is off"


@pytest.fixture(autouse=True)
def clients_are_closed() -> Iterator[None]:
    """A client that stays open has a thread and three descriptors. With 1024 of them `select` fails, in py4j for example.

    Clients of wider fixtures were there before; the idle ones that Spark tasks share in this process are closed here.
    """
    before = set(threading.enumerate())
    yield
    connections = sys.modules.get("odradek.spark.connections")
    if connections is not None:
        connections.close_idle()
    left_open = []
    for thread in set(threading.enumerate()) - before:
        if thread.name in CLIENT_THREADS:
            thread.join(END_OF_THREAD_S)  # it may be about to end
            if thread.is_alive():
                left_open.append(thread.name)
    assert not left_open, f"clients that the test did not close: {', '.join(sorted(left_open))}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """`tests.again` asks how the run ended: one that broke off says nothing about the tests that it did not reach."""
    if session.config.cache is not None and not hasattr(session.config, "workerinput"):
        session.config.cache.set("odradek/exit", int(exitstatus))
