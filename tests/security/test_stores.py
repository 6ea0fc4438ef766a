"""Keystores in the formats that Kafka's users have."""

import datetime
import os
import stat
from pathlib import Path
from typing import Any

import jks
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from tests.security.conftest import NOW, Pems, SecureScene

from odradek.config.loading import load_broker_config
from odradek.model.errors import ConfigError
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.security.tls.listener_tls import ListenerCertificates

DER, PASSWORD = serialization.Encoding.DER, "storepass"


def stored(pems: Pems, kind: str, directory: Path) -> dict[str, str]:
    """The broker's key and its authority, as stores of a kind; the settings that name them."""
    content = Path(pems.broker).read_bytes()
    key = serialization.load_pem_private_key(content, None)
    leaf = x509.load_pem_x509_certificate(content[content.index(b"-----BEGIN CERT") :])
    authority = x509.load_pem_x509_certificate(Path(pems.ca).read_bytes())
    path, trust = directory / f"keys.{kind}", directory / f"trust.{kind}"
    if kind == "p12":
        secret = serialization.BestAvailableEncryption(PASSWORD.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, leaf, [authority], secret))  # type: ignore[arg-type]
        trust.write_bytes(pkcs12.serialize_key_and_certificates(b"ca", None, None, [authority], secret))
    else:
        plain = serialization.NoEncryption()
        private = key.private_bytes(DER, serialization.PrivateFormat.PKCS8, plain)
        entry = jks.PrivateKeyEntry.new("own", [leaf.public_bytes(DER)], private, "pkcs8")
        jks.KeyStore.new("jks", [entry]).save(str(path), PASSWORD)
        trusted = jks.TrustedCertEntry.new("ca", authority.public_bytes(DER))
        jks.KeyStore.new("jks", [trusted]).save(str(trust), PASSWORD)
    path.chmod(0o600)
    return {
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": PASSWORD,
    }


@pytest.mark.parametrize("kind", ["p12", "jks"])
async def test_a_broker_serves_with_javas_stores(scene: SecureScene, tmp_path: Path, kind: str) -> None:
    await scene.secure("SSL", {**stored(scene.pems, kind, tmp_path), "ssl.client.auth": "required"})
    wire = await scene.wire(scene.pems.client_context(Path(scene.pems.broker)))
    assert (await wire.ask(MetadataRequest(topics=None), 9)).cluster_id


@pytest.mark.parametrize("kind", ["p12", "jks"])
def test_a_wrong_password_is_named_and_not_shown(pems: Pems, tmp_path: Path, kind: str) -> None:
    settings = {**stored(pems, kind, tmp_path), "ssl.keystore.password": "hunter2", "listeners": "SSL://:0"}
    config, _ = load_broker_config(settings)
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password\) is wrong") as caught:
        ListenerCertificates("SSL", config.security["SSL"])
    assert "hunter2" not in str(caught.value)


def signed(signer_key: Any, signer: str, key: Any, name: str, *, is_authority: bool) -> x509.Certificate:
    subject, issuer = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in (name, signer)
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - datetime.timedelta(days=1))
        .not_valid_after(NOW + datetime.timedelta(days=9))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .sign(signer_key, hashes.SHA256())
    )


def as_with_sha1(certificate: x509.Certificate) -> x509.Certificate:
    """It names SHA-1 as its digest. Its signature is then wrong, which is looked at later."""
    with_sha256 = bytes.fromhex("2a864886f70d01010b")
    content = certificate.public_bytes(DER)
    assert content.count(with_sha256) == 2
    return x509.load_der_x509_certificate(content.replace(with_sha256, with_sha256[:-1] + b"\x05"))


@pytest.mark.parametrize(
    ("leaf_bits", "authority_bits", "has_sha1", "words"),
    [
        (
            2048,
            2048,
            hashes.SHA1(),
            "a certificate cannot be used: .* signed with SHA-1 .* issued again with SHA-256",
        ),
        (1024, 2048, False, "the certificate cannot be used: its key is too small"),
        (2048, 1024, False, "the certificate cannot be used: the key of an authority .* too small"),
    ],
    ids=["SHA-1", "a small key", "an authority's small key"],
)
@pytest.mark.parametrize("kind", ["pem", "p12"])
def test_what_is_too_weak_in_a_keystore_is_named(
    tmp_path: Path, kind: str, leaf_bits: int, authority_bits: int, has_sha1: bool, words: str
) -> None:
    """It is the certificate, and neither the private key nor its password."""
    ca_key, key = (
        rsa.generate_private_key(public_exponent=65537, key_size=bits) for bits in (authority_bits, leaf_bits)
    )
    ca = signed(ca_key, "ca", ca_key, "ca", is_authority=True)
    leaf = signed(ca_key, "ca", key, "leaf", is_authority=False)
    leaf = as_with_sha1(leaf) if has_sha1 else leaf
    path = tmp_path / f"keys.{kind}"
    if kind == "p12":
        secret = serialization.BestAvailableEncryption(PASSWORD.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, leaf, [ca], secret))
    else:
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(
            plain + b"".join(made.public_bytes(serialization.Encoding.PEM) for made in (leaf, ca))
        )
    path.chmod(0o600)
    settings = {
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": PASSWORD,
        "listeners": "SSL://:0",
    }
    config, _ = load_broker_config(settings)
    with pytest.raises(ConfigError, match=rf"ssl\.keystore: {words}") as caught:
        ListenerCertificates("SSL", config.security["SSL"])
    assert "password" not in str(caught.value)
    assert "private key" not in str(caught.value)


def test_a_store_of_an_unknown_algorithm_does_not_blame_the_password_alone(
    pems: Pems, tmp_path: Path
) -> None:
    settings = {**stored(pems, "p12", tmp_path), "listeners": "SSL://:0"}
    path = Path(settings["ssl.keystore.location"])
    pbes2 = bytes.fromhex("2a864886f70d01050d")
    assert pbes2 in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(pbes2, pbes2[:-1] + b"\x7f"))
    config, _ = load_broker_config(settings)
    with pytest.raises(
        ConfigError, match=r"protected by an algorithm that is not supported \(`openssl pkcs12"
    ):
        ListenerCertificates("SSL", config.security["SSL"])


@pytest.mark.check(48)
async def test_no_file_of_a_broker_is_readable_by_all_users(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    files = [Path(folder) / name for folder, _, names in os.walk(scene.directory / "data") for name in names]
    assert any(path.name == "registry.journal" for path in files)
    assert [path.name for path in files if path.stat().st_mode & stat.S_IROTH] == []
