"""A console as a process, and Debian's Chromium to look at it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.kit.commands import RunningCommand

from odradek.testing import LocalBroker

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium")


@contextmanager
def console_process(*arguments: str) -> Iterator[str]:
    """Yields the address of a console that listens, without the slash at its end."""
    console = RunningCommand("console", "--listen", "127.0.0.1:0", *arguments)
    with console:
        yield console.address.rstrip("/")
    assert console.stop() == 0


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("absent: chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="absent: playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


@pytest.fixture(scope="module")
def console(broker: LocalBroker) -> Iterator[str]:
    with console_process("--bootstrap", broker.address) as address:
        yield address
