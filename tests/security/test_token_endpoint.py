"""Clients get their tokens from an issuer, by id and secret (KIP-768)."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from tests.security.conftest import Pems, SecureScene
from tests.security.test_in_a_broker import fresh, with_tokens

import odradek
from odradek.client.network.errors import BrokerUnreachableError
from odradek.client.network.token_endpoint import TokenEndpoint
from odradek.client.settings.settings import AdminSettings
from odradek.model.errors import ConfigError, KafkaError
from odradek.net.outgoing_security import LoginFailed

SECRET: Final = "hunter2"
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
JAAS: Final = f'{MODULE} required clientId="etl" clientSecret="{SECRET}" scope="kafka:read";'


class Issuer(ThreadingHTTPServer):
    """`answers`: status and content of the next ones; then tokens. `requests`: who asked, and for what."""

    def __init__(self, pems: Pems) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pems.broker)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.answers: list[tuple[int, bytes]] = []
        self.requests: list[tuple[str, str]] = []
        self.url = f"https://127.0.0.1:{self.server_port}/token"

    def answer(self) -> tuple[int, bytes]:
        if self.answers:
            return self.answers.pop(0)
        return 200, json.dumps({"access_token": fresh(), "expires_in": 60, "token_type": "Bearer"}).encode()


class Asked(BaseHTTPRequestHandler):
    server: Issuer

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        scheme, _, encoded = self.headers["Authorization"].partition(" ")
        assert scheme == "Basic"
        self.server.requests.append((base64.b64decode(encoded).decode(), form))
        status, content = self.server.answer()
        self.send_response(status)
        self.send_header("Location", "https://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Not to standard error."""


@pytest.fixture
def issuer(pems: Pems, monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    monkeypatch.setenv("SSL_CERT_FILE", pems.ca)
    server = Issuer(pems)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield server
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


def settings(url: str, **more: Any) -> AdminSettings:
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": JAAS}
    return AdminSettings.of("127.0.0.1:1", {**login, "sasl_oauthbearer_token_endpoint_url": url, **more})


@pytest.mark.check(31)
async def test_a_client_logs_in_by_what_its_issuer_gives_for_id_and_secret(
    scene: SecureScene, issuer: Issuer
) -> None:
    await with_tokens(scene)
    assert scene.broker is not None
    issuer.answers.append((503, b""))  # it is asked again
    async with odradek.AsyncAdmin(
        scene.broker.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=issuer.url,
        sasl_jaas_config=JAAS,
        default_api_timeout_ms=30_000,
    ) as admin:
        assert (await admin.describe_cluster()).brokers
        assert SECRET not in repr(admin)
    assert set(issuer.requests) == {(f"etl:{SECRET}", "grant_type=client_credentials&scope=kafka%3Aread")}


@pytest.mark.check(31)
async def test_a_secret_that_is_refused_is_named_and_not_shown(scene: SecureScene, issuer: Issuer) -> None:
    await with_tokens(scene)
    assert scene.broker is not None
    issuer.answers += [(401, b'{"error": "invalid_client"}')] * 10
    async with odradek.AsyncAdmin(
        scene.broker.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=issuer.url,
        sasl_oauthbearer_client_credentials_client_id="etl",
        sasl_oauthbearer_client_credentials_client_secret=SECRET,
    ) as admin:
        with pytest.raises(KafkaError, match="HTTP 401 invalid_client") as caught:
            await admin.describe_cluster()
    assert SECRET not in str(caught.value)


async def test_a_token_is_used_again_until_a_fifth_of_its_time_is_left(issuer: Issuer) -> None:
    clock = Clock()
    endpoint = TokenEndpoint(settings(issuer.url), clock)
    first = await asyncio.to_thread(endpoint.token)
    clock.now_s += 47
    assert await asyncio.to_thread(endpoint.token) == first
    assert len(issuer.requests) == 1
    clock.now_s += 2
    await asyncio.to_thread(endpoint.token)
    assert len(issuer.requests) == 2


@pytest.mark.parametrize(
    ("answered", "error", "words"),
    [
        ((200, b"no JSON"), LoginFailed, "holds no access_token"),
        ((200, b'{"access_token": 7}'), LoginFailed, "holds no access_token"),
        ((302, b""), LoginFailed, "HTTP 302"),
        ((400, b'{"error": "invalid_scope"}'), LoginFailed, "HTTP 400 invalid_scope"),
        ((429, b""), BrokerUnreachableError, "HTTP 429"),
        ((500, b""), BrokerUnreachableError, "HTTP 500"),
    ],
)
def test_only_what_may_pass_is_tried_again(
    issuer: Issuer, answered: tuple[int, bytes], error: type[Exception], words: str
) -> None:
    issuer.answers.append(answered)
    with pytest.raises(error, match=words):
        TokenEndpoint(settings(issuer.url)).token()
    assert len(issuer.requests) == 1, "and no redirect is followed"


def test_an_issuer_of_an_unknown_authority_gets_no_secret(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(BrokerUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        TokenEndpoint(settings(issuer.url)).token()
    assert issuer.requests == []


@pytest.mark.parametrize("url", ["http://issuer.example/token", "file:///etc/passwd", "ftp://h/x", "token"])
def test_a_secret_is_sent_by_https_only(url: str) -> None:
    with pytest.raises(ConfigError, match="expected https://"):
        TokenEndpoint(settings(url))


def test_an_issuer_is_of_no_use_without_id_and_secret() -> None:
    for jaas in (f"{MODULE} required;", f'{MODULE} required clientId="etl";'):
        with pytest.raises(ConfigError, match="needs clientId and clientSecret"):
            settings("https://issuer/token", sasl_jaas_config=jaas).check_security()


@pytest.mark.parametrize(
    ("encoded", "sent"),
    [(False, "a b*~-._:é/:hunter2+=&%"), (True, "a+b*%7E-._%3A%C3%A9%2F:hunter2%2B%3D%26%25")],
)
def test_id_and_secret_are_url_encoded_as_java_does_it_if_the_issuer_asks_for_that(
    issuer: Issuer, encoded: bool, sent: str
) -> None:
    secret = "hunter2+=&%"
    with_urlencode = {"sasl_oauthbearer_header_urlencode": True} if encoded else {}
    endpoint = TokenEndpoint(
        settings(
            issuer.url,
            sasl_jaas_config="",
            sasl_oauthbearer_client_credentials_client_id="a b*~-._:é/",
            sasl_oauthbearer_client_credentials_client_secret=secret,
            **with_urlencode,
        )
    )
    endpoint.token()
    assert [asked for asked, _ in issuer.requests] == [sent]
