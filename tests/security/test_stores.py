"""Keystores in the formats that Kafka's users have."""

import os
import stat
from pathlib import Path

import jks
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from tests.security.conftest import Pems, SecureScene

from odradek.config.broker import BrokerConfig
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
    assert (await wire.call("Metadata", 9, MetadataRequest(topics=None))).cluster_id


@pytest.mark.parametrize("kind", ["p12", "jks"])
def test_a_wrong_password_is_named_and_not_shown(pems: Pems, tmp_path: Path, kind: str) -> None:
    settings = {**stored(pems, kind, tmp_path), "ssl.keystore.password": "hunter2", "listeners": "SSL://:0"}
    config, _ = BrokerConfig.load(settings)
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password\) is wrong") as caught:
        ListenerCertificates("SSL", config.security["SSL"])
    assert "hunter2" not in str(caught.value)


@pytest.mark.check(48)
async def test_no_file_of_a_broker_is_readable_by_all_users(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    files = [Path(folder) / name for folder, _, names in os.walk(scene.directory / "data") for name in names]
    assert any(path.name == "registry.journal" for path in files)
    assert [path.name for path in files if path.stat().st_mode & stat.S_IROTH] == []
