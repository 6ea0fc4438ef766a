"""A console in front of a real broker; both in this process, the console without a socket."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

import odradek.client.network.security  # noqa: F401 - two threads must not rewrite its asserts at the same time
from odradek.client import Admin
from odradek.client.settings.settings import AdminSettings
from odradek.console.all_pages import PAGES
from odradek.console.web.application import application
from odradek.console.web.console import Console, ConsoleOptions
from odradek.testing import LocalBroker

ADDRESS = "http://127.0.0.1:8484"
HOSTS = frozenset({"127.0.0.1"})


class Browser:
    """Pages and forms as a browser asks for them: cookies are kept, and a form sends the token that its page had."""

    def __init__(self, console: Console) -> None:
        self.console = console
        transport = httpx.ASGITransport(application(console, PAGES))
        self.http = httpx.AsyncClient(transport=transport, base_url=ADDRESS)

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.http.get(path, **more)

    async def submit(self, path: str, on: str | None = None, **fields: str) -> httpx.Response:
        """Sends a form of the page `on`, by default of `path`."""
        page = await self.get(on or path)
        return await self.post(path, token=token_of(page.text), **fields)

    async def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> httpx.Response:
        return await self.http.post(path, data=fields, headers={"origin": ADDRESS, **(headers or {})})


def token_of(page: str) -> str:
    match = re.search(r'name="token" value="([0-9a-f]{64})"', page)
    assert match is not None, page
    return match[1]


def login_options(broker: LocalBroker, *, read_only: bool = False) -> ConsoleOptions:
    """Returns the options of a console to which each user logs in by name and password."""
    settings = AdminSettings.arguments({"bootstrap.servers": "", **broker.client_settings})
    for name in ("bootstrap_servers", "sasl_username", "sasl_password"):
        settings.pop(name, None)
    return ConsoleOptions(
        bootstrap=broker.address, settings=settings, asks_for_login=True, hosts=HOSTS, read_only=read_only
    )


def login_of(broker: LocalBroker) -> dict[str, str]:
    return {
        "name": broker.client_settings["sasl.username"],
        "password": broker.client_settings["sasl.password"],
    }


@asynccontextmanager
async def browser_of(options: ConsoleOptions) -> AsyncIterator[Browser]:
    console = Console(options)
    browser = Browser(console)
    try:
        yield browser
    finally:
        await browser.http.aclose()
        await console.close()


@pytest.fixture(autouse=True)
def _callbacks_are_short() -> None:
    """Takes the place of the check of callbacks: the console has a thread for callbacks that decode large answers."""


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


@pytest.fixture
def admin(broker: LocalBroker) -> Iterator[Admin]:
    with Admin(broker.address) as client:
        yield client


@pytest.fixture
async def browser(broker: LocalBroker) -> AsyncIterator[Browser]:
    async with browser_of(ConsoleOptions(bootstrap=broker.address, hosts=HOSTS)) as running:
        yield running


@pytest.fixture(scope="module")
def secure_broker() -> Iterator[LocalBroker]:
    with LocalBroker(secure=True) as running:
        yield running
