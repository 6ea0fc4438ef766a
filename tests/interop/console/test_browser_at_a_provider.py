"""A login at an identity provider in a real browser: its rules for cookies, policies and sites are the browser's own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.interop.console.conftest import console_process
from tests.security.logins.identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProvider

from odradek.runtime.real_clock import SystemClock
from odradek.testing import LocalBroker

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.interop


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    """A provider on another site than the console's: the console is at 127.0.0.1."""
    with IdentityProvider(SystemClock()).running("localhost") as running:
        yield running


@pytest.fixture
def console(provider: IdentityProvider, tmp_path: Path) -> Iterator[str]:
    keys, secret, client = (tmp_path / name for name in ("jwks.json", "secret", "client.properties"))
    keys.write_text(json.dumps({"keys": [provider.key.jwk()]}))
    secret.write_text(CLIENT_SECRET)
    secret.chmod(0o600)
    client.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n")
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "--listen": f"127.0.0.1:{port}",
        "--command-config": str(client),
        "--oidc-issuer": provider.issuer,
        "--oidc-client-id": CLIENT_ID,
        "--oidc-client-secret-file": str(secret),
    }
    with LocalBroker(settings) as broker:
        arguments = [word for pair in options.items() for word in pair]
        with console_process("--bootstrap", broker.address, *arguments) as address:
            assert address == f"http://127.0.0.1:{port}"
            yield address


def test_a_browser_logs_in_follows_links_of_other_sites_and_logs_out(
    chromium: Browser, console: str, provider: IdentityProvider
) -> None:
    context = chromium.new_context(locale="en-US")
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(f"{console}/topics?search=a")
    page.get_by_role("link", name="Log in at localhost").click()
    page.get_by_text("ann@example").wait_for()
    assert page.url == f"{console}/topics?search=a"
    assert provider.asked == ["authorization_code"]
    page.goto(f"{provider.origin}/link?{console}/groups")
    page.get_by_role("link", name="the console").click()
    page.get_by_text("ann@example").wait_for()
    assert page.url == f"{console}/groups", "the session outlives a link of another site"
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("link", name="Log out of localhost").wait_for()
    page.goto(f"{console}/topics")
    assert "/login" in page.url
    assert [line for line in complaints if "favicon" not in line] == []
    context.close()


def test_it_works_without_the_script(chromium: Browser, console: str) -> None:
    context = chromium.new_context(locale="en-US", java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{console}/login")
    page.get_by_role("link", name="Log in at localhost").click()
    page.get_by_text("ann@example").wait_for()
    context.close()
