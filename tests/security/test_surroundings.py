"""What stands around logins: keys of issuers, the doctor, limits that count before a login."""

import asyncio
import datetime
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.security.conftest import NOW, Pems, SecureScene
from tests.security.test_mechanisms import JWKS

from odradek.broker.security.issuer_keys import KeySource
from odradek.cli.doctor.security import check_security
from odradek.config.loading import load_broker_config
from odradek.config.sasl import SaslConfig
from odradek.model.errors import ConfigError
from odradek.runtime.real import real_runtime
from odradek.security.tls.authority import CertificateAuthority, CertificateRequest


def source(url: str, **more: Any) -> KeySource:
    return KeySource(SaslConfig(oauthbearer_jwks_endpoint_url=url, **more), real_runtime())


@pytest.mark.check(30)
@pytest.mark.parametrize(
    "url",
    [
        "http://issuer/keys",
        "https://issuer/keys",
        "ftp://issuer/keys",
        "file://elsewhere/etc/keys",
        "keys.json",
    ],
)
def test_keys_come_from_files_and_allowed_https_urls_only(url: str) -> None:
    with pytest.raises(ConfigError, match="is not allowed"):
        source(url, oauthbearer_allowed_urls=("https://other/keys",))


@pytest.mark.check(30)
async def test_a_url_that_is_allowed_is_fetched_without_following_redirects(
    pems: Pems, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An issuer with two keys, which redirects from `/moved` to them."""
    monkeypatch.setenv("SSL_CERT_FILE", pems.ca)
    with issuer(pems) as address:
        for path, names in (("keys", {"r", "e"}), ("moved", set())):
            url = f"{address}/{path}"
            keys = source(url, oauthbearer_allowed_urls=(url,))
            await keys.refresh()
            assert set(keys.keys) == names


@contextmanager
def issuer(pems: Pems) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Issuer)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pems.broker)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


class Issuer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
            return
        content = json.dumps(JWKS).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Not to standard error."""


@pytest.mark.check(26)
async def test_keys_in_a_file_are_fetched_again_when_a_token_names_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": JWKS["keys"][:1]}))
    keys = source(f"file://{path}", oauthbearer_jwks_endpoint_retry_backoff_ms=1)
    assert set(keys.keys) == {"r"}
    path.write_text(json.dumps(JWKS))
    await keys.refresh()
    assert set(keys.keys) == {"r"}, "it is not time"
    keys.unknown_key("e")
    await asyncio.sleep(0.01)
    await keys.refresh()
    assert set(keys.keys) == {"r", "e"}
    path.write_text("nonsense")
    keys.unknown_key("x")
    await asyncio.sleep(0.01)
    await keys.refresh()
    assert set(keys.keys) == {"r", "e"}, "what is known stays"


@pytest.mark.check(44)
async def test_handshakes_that_stand_still_count_as_connections(scene: SecureScene) -> None:
    await scene.secure("SSL", {"max.connections": "2"})
    port = scene.broker.port  # type: ignore[union-attr]
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        ended = await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        ended = b""
    assert ended == b""
    for _, other in [*silent, (reader, writer)]:
        other.close()


def test_the_doctor_says_what_is_open_and_what_expires(pems: Pems, tmp_path: Path) -> None:
    old = tmp_path / "old.pem"
    old.write_bytes(pems.authority.issue(CertificateRequest(name="b", hosts=["b"], days=3), now=NOW).pem)
    old.chmod(0o600)
    config, _ = load_broker_config(
        {
            "listeners": "PLAINTEXT://:0,SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
            "ssl.keystore.location": pems.broker,
            "listener.name.ssl.ssl.keystore.location": str(old),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        }
    )
    findings = [(finding.level.value, finding.seen) for finding in check_security(config)]
    assert [level for level, _ in findings] == ["warn", "warn", "ok", "warn"]
    assert "anyone who reaches it" in findings[0][1]
    assert "expires in 3 days" in findings[1][1]
    assert "all of them may do everything" in findings[3][1]


def test_the_doctor_sees_what_a_secured_configuration_leaves_open(pems: Pems, tmp_path: Path) -> None:
    short = CertificateAuthority.new("short", now=NOW, days=5)
    trusted, crl = tmp_path / "trusted.pem", tmp_path / "crl.pem"
    trusted.write_bytes(pems.authority.issued.certificate + short.issued.certificate)
    crl.write_bytes(pems.authority.revoke([], now=NOW - datetime.timedelta(days=40)))
    config, _ = load_broker_config(
        {
            "listeners": "SSL://:0,SASL_SSL://127.0.0.1:0",
            "ssl.keystore.location": pems.broker,
            "ssl.truststore.location": str(trusted),
            "ssl.endpoint.identification.algorithm": "",
            "listener.name.ssl.odradek.ssl.crl.location": str(crl),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "odradek.sasl.oauthbearer.unsecured.enable": "true",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
    )
    findings = [f"{finding.level.value} {finding.seen}" for finding in check_security(config)]
    for expected in (
        "warn anyone who reaches it may use it: it asks for no certificate",
        "warn this broker does not look which host it talks to",
        "warn the authority short expires in 5 days",
        "fail the list of revoked certificates, after which no certificate counts, expired 10 days ago",
        "warn tokens without a signature count, so clients can claim to be anyone",
        "warn what no rule is about is open to everyone",
    ):
        assert expected in findings
