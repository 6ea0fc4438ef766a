"""What holds for every test: no disk may hold up an event loop, and garbage is collected."""

import gc
import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from tests.scheduling import FileScheduling, MeasuredDurations

from odradek.runtime import real
from odradek.runtime.real_offload import ThreadOffload
from odradek.testing import guarded_disk
from odradek.testing.guarded_disk import GuardedDisk

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")  # many tests run side by side: how long an example takes tells nothing about it


@pytest.fixture(autouse=True)
def process_is_as_before() -> Iterator[None]:
    """One fixture for what holds for every test: pytest takes a tenth of a millisecond for each, twenty thousand times over."""
    with _loggers_as_before(), _garbage_collector_on(), _threads_of_runtimes_ended(), _loop_off_the_disk():
        yield


@contextmanager
def _loop_off_the_disk() -> Iterator[None]:
    """Runtimes of this machine get a disk that refuses what blocks on an event loop; worlds of the simulator have one."""
    disk = real.PosixDisk
    guarded_disk.violations.clear()
    try:
        with patch.object(real, "PosixDisk", lambda: GuardedDisk(disk())):
            yield
    finally:
        violations = list(guarded_disk.violations)
        guarded_disk.violations.clear()
    assert not violations, "\n".join(violations)


@contextmanager
def _threads_of_runtimes_ended() -> Iterator[None]:
    """A runtime that a test leaves open would keep its threads until the process ends: after a thousand tests, hundreds."""
    offload = real.ThreadOffload
    made: list[ThreadOffload] = []

    def make(threads: int = 4) -> ThreadOffload:
        made.append(offload(threads))
        return made[-1]

    try:
        with patch.object(real, "ThreadOffload", make):
            yield
    finally:
        for offload_left in made:
            offload_left.close()


@contextmanager
def _garbage_collector_on() -> Iterator[None]:
    """A test that leaves it off costs those behind it memory, descriptors and time, in the same process."""
    try:
        yield
    finally:
        enabled = gc.isenabled()
        gc.enable()
    assert enabled, "the garbage collector is off"


@contextmanager
def _loggers_as_before() -> Iterator[None]:
    """A command that runs in a test's process sends all events to standard error, where tests after it do not look for them."""
    loggers = [logging.getLogger(name) for name in ("odradek", "asyncio")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    try:
        yield
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the garbage collector off while pytest collects: tests and modules stay to the end. No full collection walks
    through them later.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(MeasuredDurations(config), "odradek-durations")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`make test` deals out whole files (`scheduling.py`); other ways to distribute tests stay as they are."""
    return FileScheduling(config, log) if config.getoption("dist") == "worksteal" else None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """`tests.again` asks how the run ended: one that broke off says nothing about the tests that it did not reach."""
    cache = getattr(session.config, "cache", None)  # there is none with `-p no:cacheprovider`
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set("odradek/exit", int(exitstatus))
