"""An authority, its certificates, and brokers whose listeners are secured."""

import datetime
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.kit.wire import Wire
from tests.scenarios.one_broker import Scene

from odradek.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from odradek.security.sasl.exchange import ClientExchange
from odradek.security.tls.authority import CertificateAuthority, CertificateRequest

NOW = datetime.datetime.now(datetime.UTC)
PROTOCOLS = "SSL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"
FIRST_USERS = ";".join(f"{name}=[name=alice,password=secret]" for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"))


class Pems:
    """Files of one authority."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = CertificateAuthority.new("tests", now=NOW)
        self.ca = str(self.write("ca.pem", self.authority.issued.certificate))
        self.broker = str(self.issue("broker.pem", name="broker", hosts=["localhost", "127.0.0.1"]))

    def write(self, name: str, content: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(content)
        path.chmod(0o600)
        return path

    def issue(self, file: str, **request: Any) -> Path:
        issued = self.authority.issue(CertificateRequest(**request), now=NOW)
        return self.write(file, issued.pem)

    def client_context(self, certificate: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


@pytest.fixture(scope="session")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Pems:
    return Pems(tmp_path_factory.mktemp("pems"))


class SecureScene(Scene):
    """A broker with one listener of a protocol, and connections to it."""

    def __init__(self, directory: Path, pems: Pems) -> None:
        super().__init__(directory)
        self.pems = pems

    async def secure(self, protocol: str, settings: dict[str, str] | None = None) -> None:
        values = {
            "listeners": f"{protocol}://127.0.0.1:0",
            "connection.failed.authentication.delay.ms": "1",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "odradek.scram.first.users": FIRST_USERS,
        }
        if protocol.endswith("SSL"):
            values |= {"ssl.keystore.location": self.pems.broker, "ssl.truststore.location": self.pems.ca}
        await self.start(**{**values, **(settings or {})})

    async def wire(self, context: ssl.SSLContext | None = None) -> Wire:
        return await self.connect(tls=context)

    async def stop(self) -> None:
        wires, self._wires[:] = list(self._wires), []
        for wire in wires:
            with suppress(OSError):  # the broker may have refused its certificate meanwhile
                await wire.close()
        await super().stop()


@pytest.fixture
async def scene(tmp_path: Path, pems: Pems) -> AsyncIterator[SecureScene]:
    secure_scene = SecureScene(tmp_path, pems)
    try:
        yield secure_scene
    finally:
        await secure_scene.stop()


async def log_in(wire: Wire, exchange: ClientExchange, mechanism: str) -> Any:
    """The last answer of a login."""
    handshake = await wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert handshake.error_code == 0
    last_reply: Any = None
    challenge = b""
    while (response := exchange.step(challenge)) is not None:
        last_reply = await wire.ask(SaslAuthenticateRequest(auth_bytes=response), 2)
        if last_reply.error_code:
            break
        challenge = last_reply.auth_bytes
    return last_reply


@pytest.fixture
def caught(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[dict[str, Any]]]:
    """The values of the events of one name."""

    def of(event: str) -> list[dict[str, Any]]:
        return [
            getattr(record, "odradek_values", {})
            for record in caplog.records
            if str(record.msg).partition(" ")[0] == event
        ]

    return of
