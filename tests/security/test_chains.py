"""Certificates as larger companies have them: signed by an authority below the one that clients trust, replaced and revoked
while brokers run, and given as text.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jks
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from tests.kit.waiting import until
from tests.security.conftest import NOW, Pems, SecureScene

from odradek.config.loading import load_broker_config
from odradek.net.outgoing_security import OutgoingSecurity, SecuredProtocol
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.security.tls.authority import CertificateAuthority, CertificateRequest, IssuedCertificate
from odradek.security.tls.listener_tls import ListenerCertificates
from odradek.testing.sim.wire_client import WireClient

HOSTS: Final = ("localhost", "127.0.0.1")
PASSWORD: Final = "storepass"
PATIENCE_S: Final = 60
DER, PEM = serialization.Encoding.DER, serialization.Encoding.PEM
PLAIN = serialization.NoEncryption()


def _authority(name: str, signed_by: tuple[Any, Any] | None) -> tuple[Any, Any]:
    """Key and certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer, issuer = (key, subject) if signed_by is None else (signed_by[0], signed_by[1].subject)
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - datetime.timedelta(days=1))
        .not_valid_after(NOW + datetime.timedelta(days=9))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), critical=True
        )
    )
    return key, builder.sign(signer, hashes.SHA256())


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A broker's key, its certificate, and two authorities above it. Clients know the first one only."""

    key: Any
    leaf: Any
    middle: Any
    root: Any

    @classmethod
    def new(cls) -> Chain:
        root = _authority("root", None)
        key, middle = _authority("middle", root)
        below = CertificateAuthority(
            IssuedCertificate(
                key=key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, PLAIN),
                certificate=middle.public_bytes(PEM),
            )
        )
        issued = below.issue(CertificateRequest(name="broker", hosts=HOSTS), now=NOW)
        return cls(
            key=serialization.load_pem_private_key(issued.key, None),
            leaf=x509.load_pem_x509_certificate(issued.certificate),
            middle=middle,
            root=root[1],
        )

    def private(self, encoding: serialization.Encoding) -> bytes:
        return bytes(self.key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, PLAIN))

    def store(self, kind: str, path: Path) -> dict[str, str]:
        """A keystore at `path`, and the settings that name it."""
        if kind == "pem":
            path.write_bytes(self.private(PEM) + self.leaf.public_bytes(PEM) + self.middle.public_bytes(PEM))
        elif kind == "p12":
            secret = serialization.BestAvailableEncryption(PASSWORD.encode())
            others = [self.root, self.middle]  # not in the order in which they sign
            path.write_bytes(
                pkcs12.serialize_key_and_certificates(b"own", self.key, self.leaf, others, secret)
            )
        else:
            certificates = [self.leaf.public_bytes(DER), self.middle.public_bytes(DER)]
            entry = jks.PrivateKeyEntry.new("own", certificates, self.private(DER), "pkcs8")
            jks.KeyStore.new("jks", [entry]).save(str(path), PASSWORD)
        path.chmod(0o600)
        password = {} if kind == "pem" else {"ssl.keystore.password": PASSWORD}
        return {"ssl.keystore.location": str(path), **password}


@pytest.mark.parametrize("kind", ["pem", "p12", "jks"])
async def test_a_client_that_knows_the_root_only_believes_a_broker_with_its_chain(
    scene: SecureScene, tmp_path: Path, kind: str
) -> None:
    chain = Chain.new()
    await scene.secure("SSL", chain.store(kind, tmp_path / f"own.{kind}"))
    context = ssl.create_default_context(cadata=chain.root.public_bytes(PEM).decode())
    wire = await scene.wire(context)
    assert (await wire.ask(MetadataRequest(topics=None), 9)).cluster_id


async def test_keys_and_certificates_may_be_text_in_the_settings(scene: SecureScene) -> None:
    chain = Chain.new()
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": chain.private(PEM).decode(),
        "ssl.keystore.certificate.chain": (
            chain.leaf.public_bytes(PEM) + chain.middle.public_bytes(PEM)
        ).decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": scene.pems.authority.issued.certificate.decode(),
        "ssl.client.auth": "required",
    }
    await scene.start(**{"listeners": "SSL://127.0.0.1:0", **texts})
    context = ssl.create_default_context(cadata=chain.root.public_bytes(PEM).decode())
    context.load_cert_chain(scene.pems.broker)
    wire = await scene.wire(context)
    assert (await wire.ask(MetadataRequest(topics=None), 9)).cluster_id


@pytest.mark.check(8)
async def test_a_file_that_changes_is_taken_over_by_a_running_broker(
    scene: SecureScene, tmp_path: Path
) -> None:
    path = tmp_path / "own.pem"

    def put() -> int:
        issued = scene.pems.authority.issue(CertificateRequest(name="broker", hosts=HOSTS), now=NOW)
        fresh = tmp_path / "fresh.pem"
        fresh.write_bytes(issued.pem)
        fresh.chmod(0o600)
        fresh.rename(path)
        return x509.load_pem_x509_certificate(issued.certificate).serial_number

    async def served() -> int:
        wire = await scene.wire(scene.pems.client_context())
        return int(wire.about("ssl_object").getpeercert()["serialNumber"], 16)

    first = put()
    await scene.secure("SSL", {"ssl.keystore.location": str(path)})
    assert await served() == first
    second = put()
    await until(served, holds=lambda certificate: certificate == second)


@pytest.mark.check(5, 8)
async def test_a_certificate_is_refused_once_the_list_of_revoked_ones_names_it(
    scene: SecureScene, tmp_path: Path
) -> None:
    authority = scene.pems.authority
    issued = authority.issue(CertificateRequest(name="eve"), now=NOW)
    own, crl = scene.pems.write("eve.pem", issued.pem), tmp_path / "crl.pem"
    crl.write_bytes(authority.revoke([], now=NOW))
    await scene.secure("SSL", {"ssl.client.auth": "required", "odradek.ssl.crl.location": str(crl)})

    async def gets_in() -> bool:
        try:
            wire = await scene.wire(scene.pems.client_context(own))
            await wire.ask(MetadataRequest(topics=None), 9)
        except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            return False
        return True

    assert await gets_in()
    crl.write_bytes(authority.revoke([issued.certificate], now=NOW))
    await until(gets_in, holds=lambda is_in: not is_in)


async def test_only_the_cipher_suites_that_are_named_are_spoken(scene: SecureScene) -> None:
    await scene.secure("SSL", {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"})
    wire = await scene.wire(scene.pems.client_context())
    cipher = wire.about("cipher")
    assert cipher[:2] == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")
    context = scene.pems.client_context()
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await scene.wire(context)


@pytest.mark.parametrize(("host", "expected"), [("localhost", "localhost"), ("127.0.0.1", None)])
async def test_a_connection_names_the_host_that_it_means(pems: Pems, host: str, expected: str | None) -> None:
    """SNI (RFC 6066, section 3), by which proxies find a broker. An address is no name."""
    named: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pems.broker)
    context.sni_callback = lambda _, name, __: named.append(name)  # type: ignore[assignment]

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    config, _ = load_broker_config(
        {"listeners": "SSL://:0", "ssl.keystore.location": pems.broker, "ssl.truststore.location": pems.ca}
    )
    certificates = ListenerCertificates("SSL", config.security["SSL"])
    security = OutgoingSecurity(context=lambda: certificates.client_context)
    secured = SecuredProtocol(WireClient(), security, host, timeout_s=20)
    transport, _ = await asyncio.get_running_loop().create_connection(
        lambda: secured.protocol, "127.0.0.1", port
    )
    await secured.handshake
    transport.abort()
    server.close()
    assert named == [expected]
