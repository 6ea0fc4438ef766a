"""Who may read the metrics listener: tokens that are replaced while it runs, TLS of a broker's listener, refusals."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.security.conftest import Pems, SecureScene

from odradek.broker.metrics.listener import MetricsListener
from odradek.cli.main import cli
from odradek.config.loading import load_broker_config
from odradek.model.errors import ConfigError
from odradek.net.page_access import PageTokens

SECONDS = 20
TOKEN = "a-token-of-many-characters"
NEXT = "another-token-of-many-characters"


def token_file(directory: Path, *tokens: str) -> str:
    path = directory / "tokens"
    path.write_text("\n".join(tokens) + "\n")
    path.chmod(0o600)
    return str(path)


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"prometheus:{password}".encode()).decode()


async def get(
    listener: MetricsListener, path: str, authorization: str = "", tls: ssl.SSLContext | None = None
) -> tuple[int, str]:
    host, port = listener.addresses[0]
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        writer.write(f"GET {path} HTTP/1.1\r\nAuthorization: {authorization}\r\n\r\n".encode())
        reply = await reader.read()
        writer.close()
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body.decode()


@pytest.fixture
async def opened() -> AsyncIterator[list[MetricsListener]]:
    listeners: list[MetricsListener] = []
    yield listeners
    for listener in listeners:
        await asyncio.to_thread(listener.close)


async def listening(
    scene: SecureScene, opened: list[MetricsListener], settings: dict[str, str], protocol: str = "PLAINTEXT"
) -> MetricsListener:
    await scene.secure(protocol, {"odradek.audit.sinks": "file"})
    assert scene.broker is not None
    values = dict(scene.broker.context.config.originals)
    config, _ = load_broker_config({**values, "metrics.listeners": "127.0.0.1:0", **settings})
    listener = MetricsListener(scene.broker, config)
    listener.start()
    opened.append(listener)
    return listener


async def test_pages_need_a_token_and_probes_need_none(
    scene: SecureScene, opened: list[MetricsListener], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "odradek")
    settings = {"odradek.metrics.token.file": token_file(tmp_path, TOKEN, NEXT)}
    listener = await listening(scene, opened, settings)
    wrong = ("", "Bearer", "Bearer wrong", f"Digest {TOKEN}", basic("wrong"), "Basic ???", f"Bearer {TOKEN}x")
    for path in ("/", "/metrics", "/info", "/slow", "/clients", "/none"):
        for authorization in wrong:
            status, body = await get(listener, path, authorization)
            assert status == 401
            assert "odradek.metrics.token.file" in body
    for authorization in (f"Bearer {TOKEN}", f"bearer {NEXT}", basic(TOKEN)):
        status, body = await get(listener, "/metrics", authorization)
        assert status == 200
        assert f"odradek_metrics_requests_refused_total {6 * len(wrong)}" in body
    assert await get(listener, "/livez") == (200, "alive\n")
    assert await get(listener, "/readyz") == (200, "ready\n"), "reasons need a token"
    assert "[ok] registry" in (await get(listener, "/readyz", f"Bearer {TOKEN}"))[1]
    refused = [
        record for record in caplog.records if record.getMessage().startswith("metrics_request_refused")
    ]
    assert refused
    assert not any(TOKEN in record.getMessage() for record in caplog.records)
    assert scene.broker is not None
    trail = scene.broker.context.audit.trail  # type: ignore[union-attr]
    await trail.flush()
    [directory] = scene.broker.context.config.storage.log_dirs
    with open(f"{directory}/audit.log", encoding="utf-8") as audit_log:  # noqa: ASYNC230 - a test
        assert '"no token: /metrics"' in audit_log.read()


def test_tokens_are_replaced_while_it_runs_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    now = [0.0]
    path = token_file(tmp_path, TOKEN)
    tokens = PageTokens(path, others_may_read=False, now=lambda: now[0])
    token_file(tmp_path, NEXT)
    assert tokens.allow(f"Bearer {TOKEN}"), "the file is looked at once a second"
    now[0] = 2.0
    assert not tokens.allow(f"Bearer {TOKEN}")
    assert tokens.allow(f"Bearer {NEXT}")
    token_file(tmp_path, "short")
    now[0] = 4.0
    assert tokens.allow(f"Bearer {NEXT}")
    Path(path).unlink()
    now[0] = 6.0
    assert tokens.allow(f"Bearer {NEXT}")


@pytest.mark.parametrize(("content", "mode"), [("short\n", 0o600), ("", 0o600), (TOKEN, 0o644)])
def test_files_that_protect_nothing_are_refused(tmp_path: Path, content: str, mode: int) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=r"odradek\.metrics\.token\.file"):
        PageTokens(str(path), others_may_read=False, now=lambda: 0.0)


async def test_it_speaks_the_tls_of_a_listener_and_asks_for_certificates_as_it_does(
    scene: SecureScene, opened: list[MetricsListener], pems: Pems
) -> None:
    settings = {"odradek.metrics.tls.listener": "SSL", "ssl.client.auth": "required"}
    listener = await listening(scene, opened, settings, "SSL")
    client = pems.issue("prometheus.pem", name="prometheus")
    status, body = await get(listener, "/metrics", tls=pems.client_context(client))
    assert status == 200
    assert "kafka_brokers" in body
    with pytest.raises((OSError, IndexError)):  # without a certificate the connection ends
        await get(listener, "/metrics", tls=pems.client_context())
    with pytest.raises((OSError, IndexError)):
        await get(listener, "/metrics")
    host, port = listener.addresses[0]
    words = ["broker", "slow", "--metrics", f"{host}:{port}", "--ca", pems.ca]
    failed = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert failed.exit_code == 1, "the command shows no certificate"


async def test_the_command_shows_a_token_and_trusts_an_authority(
    scene: SecureScene, opened: list[MetricsListener], pems: Pems, tmp_path: Path
) -> None:
    tokens = token_file(tmp_path, TOKEN)
    settings = {"odradek.metrics.tls.listener": "SSL", "odradek.metrics.token.file": tokens}
    listener = await listening(scene, opened, settings, "SSL")
    host, port = listener.addresses[0]
    words = ["broker", "clients", "--metrics", f"{host}:{port}", "--ca", pems.ca]
    shown = await asyncio.to_thread(CliRunner().invoke, cli, [*words, "--token-file", tokens, "--json"])
    assert (shown.exit_code, shown.stdout.strip()) == (0, "[]")
    refused = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert refused.exit_code == 1


@pytest.mark.parametrize("name", ["NONE", "PLAINTEXT"])
async def test_a_listener_without_tls_is_refused(
    scene: SecureScene, opened: list[MetricsListener], name: str
) -> None:
    with pytest.raises(ConfigError, match="expected a listener with TLS"):
        await listening(scene, opened, {"odradek.metrics.tls.listener": name})
