"""TLS on listeners, over the wire."""

import asyncio
import socket
import ssl
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import until
from tests.security.conftest import NOW, Pems, SecureScene

from odradek.config.loading import load_broker_config
from odradek.model.errors import ConfigError
from odradek.net.outgoing_security import OutgoingSecurity, SecuredProtocol, TlsFailure
from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.security.principals import ANONYMOUS
from odradek.security.tls.authority import CertificateAuthority, CertificateRequest
from odradek.security.tls.contexts import read_material, server_context
from odradek.security.tls.listener_tls import ListenerCertificates
from odradek.security.tls.principal_mapping import distinguished_name, parse_rules, principal_of
from odradek.testing.sim.wire_client import WireClient

SUBJECT = ((("countryName", "DE"),), (("organizationName", "Rope, Ltd"),), (("commonName", "alice"),))


@pytest.mark.check(1, 2)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions_of_tls_serve_and_nothing_is_compressed(
    scene: SecureScene, version: ssl.TLSVersion
) -> None:
    await scene.secure("SSL")
    context = scene.pems.client_context()
    context.minimum_version = context.maximum_version = version
    wire = await scene.wire(context)
    tls = wire.about("ssl_object")
    assert (tls.version(), tls.compression()) == (version.name.replace("_", ".", 1).replace("_", "."), None)
    assert (await wire.ask(MetadataRequest(topics=None), 9)).cluster_id


@pytest.mark.check(1, 2)
def test_older_versions_and_renegotiation_are_off(pems: Pems) -> None:
    config, _ = load_broker_config({"listeners": "SSL://:0", "ssl.keystore.location": pems.broker})
    security = config.security["SSL"]
    context = server_context(security.ssl, read_material(security.ssl, given=security.given))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    with pytest.raises(ConfigError, match=r"ssl.enabled.protocols='TLSv1.1' is not allowed"):
        load_broker_config({"ssl.enabled.protocols": "TLSv1.1"})


@pytest.mark.check(1)
async def test_a_client_of_an_older_version_is_refused(
    scene: SecureScene, caught: Callable[..., Any]
) -> None:
    await scene.secure("SSL")
    context = scene.pems.client_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await scene.wire(context)
    assert len(caught("tls_handshake_failed")) == 1, "by the broker, and not by this side"


@pytest.mark.check(3)
@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">ihhi", 0x7FFFFFFF, 18, 0, 1)])
async def test_plain_bytes_on_a_tls_port_end_in_one_line(
    scene: SecureScene, said: bytes, caught: Callable[..., Any]
) -> None:
    await scene.secure("SSL")
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.broker.port)  # type: ignore[union-attr]
    writer.write(said)
    alert = await asyncio.wait_for(reader.read(), 20)
    assert alert[:1] == b"\x15", "an alert, by which other clients know TLS"
    writer.close()
    (line,) = caught("tls_handshake_failed")
    assert "came where TLS was expected" in line["reason"]


async def test_a_client_that_only_looks_whether_anything_listens_is_no_failure(
    scene: SecureScene, caught: Callable[..., Any]
) -> None:
    await scene.secure("SSL")
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.broker.port)  # type: ignore[union-attr]
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
    assert list(caught("tls_handshake_failed")) == []


@pytest.mark.check(4, 6)
async def test_required_certificates_name_the_client(scene: SecureScene) -> None:
    await scene.secure("SSL", {"ssl.client.auth": "required"})
    certificate = scene.pems.issue("ann.pem", name="CN=ann,OU=weavers")
    wire = await scene.wire(scene.pems.client_context(certificate))
    await wire.ask(versions(), 3)
    assert principals(scene) == ["User:CN=ann,OU=weavers"]
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await (await scene.wire(scene.pems.client_context())).ask(versions(), 3)


@pytest.mark.check(4, 6)
async def test_requested_certificates_may_be_missing(scene: SecureScene) -> None:
    await scene.secure("SSL", {"ssl.client.auth": "requested"})
    wire = await scene.wire(scene.pems.client_context())
    await wire.ask(versions(), 3)
    assert principals(scene) == [ANONYMOUS]


@pytest.mark.check(4)
async def test_without_client_authentication_a_certificate_means_nothing(scene: SecureScene) -> None:
    await scene.secure("SSL")
    certificate = scene.pems.issue("bob.pem", name="bob")
    wire = await scene.wire(scene.pems.client_context(certificate))
    await wire.ask(versions(), 3)
    assert principals(scene) == [ANONYMOUS]


@pytest.mark.check(5)
@pytest.mark.parametrize("wrong", ["untrusted", "expired", "of a server", "revoked", "nothing"])
async def test_a_certificate_that_is_not_good_is_refused(
    scene: SecureScene, wrong: str, tmp_path: Path
) -> None:
    authority = scene.pems.authority
    if wrong == "untrusted":
        authority = CertificateAuthority.new("strangers", now=NOW)
    asked = CertificateRequest(
        name="eve",
        is_client=wrong != "of a server",
        days=-1 if wrong == "expired" else 10,
        starts_days_ago=9,
    )
    issued = authority.issue(asked, now=NOW)
    path = tmp_path / "eve.pem"
    path.write_bytes(issued.pem)
    revoked = [issued.certificate] if wrong == "revoked" else []
    crl = tmp_path / "crl.pem"
    crl.write_bytes(scene.pems.authority.revoke(revoked, now=NOW))
    await scene.secure("SSL", {"ssl.client.auth": "required", "odradek.ssl.crl.location": str(crl)})
    if wrong == "nothing":
        wire = await scene.wire(scene.pems.client_context(path))
        assert (await wire.ask(versions(), 3)).error_code == 0
        return
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await (await scene.wire(scene.pems.client_context(path))).ask(versions(), 3)


@pytest.mark.check(7)
async def test_brokers_do_not_connect_to_another_host_than_the_certificate_is_for(scene: SecureScene) -> None:
    certificate = scene.pems.issue("other.pem", name="broker", hosts=["localhost"])
    await scene.secure("SSL", {"ssl.keystore.location": str(certificate)})
    own = {
        "listeners": "SSL://:0",
        "ssl.keystore.location": scene.pems.broker,
        "ssl.truststore.location": scene.pems.ca,
    }

    async def connect(settings: dict[str, str], host: str) -> None:
        config, _ = load_broker_config(settings)
        certificates = ListenerCertificates("SSL", config.security["SSL"])
        security = OutgoingSecurity(context=lambda: certificates.client_context)
        secured = SecuredProtocol(WireClient(), security, host, timeout_s=20)
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: secured.protocol,
            "127.0.0.1",
            scene.broker.port,  # type: ignore[union-attr]
        )
        try:
            await secured.handshake
        finally:
            transport.abort()

    await connect(own, "localhost")
    with pytest.raises(TlsFailure) as caught:
        await connect(own, "127.0.0.1")
    assert caught.value.code == "CERTIFICATE_VERIFY_FAILED"
    await connect({**own, "ssl.endpoint.identification.algorithm": ""}, "127.0.0.1")


@pytest.mark.check(6)
@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "User:CN=alice,O=Rope\\, Ltd,C=DE"),
        ("RULE:^CN=(.*?),.*$/$1/U", "User:ALICE"),
        ("RULE:^OU=.*$/x/,RULE:^CN=(.*?),.*$/$1@rope/L,DEFAULT", "User:alice@rope"),
        ("RULE:^OU=.*$/x/", None),
    ],
)
def test_the_first_rule_that_fits_names_the_client(rules: str, principal: str | None) -> None:
    assert principal_of({"subject": SUBJECT}, parse_rules(rules)) == principal
    assert principal_of(None, parse_rules(rules)) == ANONYMOUS


@pytest.mark.parametrize("rules", ["RULE:^(/x/", "RULE:a/$1/", "RULE:a/b", "CN=x"])
def test_a_rule_that_cannot_be_read_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)


@pytest.mark.check(6)
def test_names_are_written_as_java_writes_them() -> None:
    assert distinguished_name(((("emailAddress", "a@b.c"),),)) == "1.2.840.113549.1.9.1=#1605614062" + "2e63"
    assert distinguished_name(((("commonName", " a+b;"),),)) == "CN=\\ a\\+b\\;"


@pytest.mark.check(8)
def test_a_replaced_certificate_is_taken_over_if_it_is_for_the_same_broker(
    pems: Pems, tmp_path: Path
) -> None:
    path = tmp_path / "own.pem"

    def put(**request: Any) -> None:
        fresh = tmp_path / "fresh.pem"
        fresh.write_bytes(pems.authority.issue(CertificateRequest(**request), now=NOW).pem)
        fresh.chmod(0o600)
        fresh.rename(path)

    put(name="broker", hosts=["a", "b"])
    config, _ = load_broker_config({"listeners": "SSL://:0", "ssl.keystore.location": str(path)})
    certificates = ListenerCertificates("SSL", config.security["SSL"])
    first = certificates.context
    assert not certificates.reload_if_changed()
    put(name="broker", hosts=["a", "b", "c"])
    assert certificates.reload_if_changed()
    second = certificates.context
    assert second is not first
    put(name="broker", hosts=["a"])
    assert not certificates.reload_if_changed()
    put(name="another", hosts=["a", "b", "c"])
    assert not certificates.reload_if_changed()
    path.write_text("no certificate at all")
    assert not certificates.reload_if_changed()
    assert certificates.context is second


@pytest.mark.check(8)
async def test_a_handshake_that_stands_still_is_ended(scene: SecureScene) -> None:
    await scene.secure("SSL", {"odradek.ssl.handshake.timeout.ms": "50"})
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.broker.port)  # type: ignore[union-attr]
    assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()


@pytest.mark.check(48)
def test_a_key_that_every_user_can_read_is_refused(pems: Pems, tmp_path: Path) -> None:
    path = tmp_path / "open.pem"
    path.write_bytes(Path(pems.broker).read_bytes())
    path.chmod(0o644)
    settings = {"listeners": "SSL://:0", "ssl.keystore.location": str(path)}
    config, _ = load_broker_config(settings)
    with pytest.raises(ConfigError, match=r"every user of this machine can read it.*chmod o-r"):
        ListenerCertificates("SSL", config.security["SSL"])
    config, _ = load_broker_config({**settings, "odradek.secret.files.readable.by.others": "true"})
    ListenerCertificates("SSL", config.security["SSL"])


async def test_answers_wait_for_a_client_that_reads_slowly(scene: SecureScene) -> None:
    await scene.secure("SSL", {"socket.send.buffer.bytes": "65536"})
    wire = await scene.wire(scene.pems.client_context())
    await wire.create("t", partitions=6)
    value = b"x" * 900_000
    for partition in range(6):
        assert (await wire.produce("t", [value], partition=partition)).error_code == 0
    wire.stop_reading()
    wanted = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in range(6)
    ]
    topics = [FetchTopic(topic="t", partitions=wanted)]
    wire.ask_later(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=64 << 20, topics=topics), 11)
    answers = scene.broker.server.answers  # type: ignore[union-attr]
    await until(lambda: answers.held_bytes)
    wire.read_again()
    response = await wire.response()
    sizes = [len(partition.records) for partition in response.responses[0].partitions]
    assert 4 * len(value) < sum(sizes) < 5 * len(value), "what is copied for one answer has a bound"
    await until(lambda: not answers.held_bytes)


async def test_a_client_that_is_gone_in_the_middle_leaves_nothing(scene: SecureScene) -> None:
    await scene.secure("SSL")
    with socket.create_connection(("127.0.0.1", scene.broker.port)) as half:  # type: ignore[union-attr]
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
    await until(lambda: not scene.broker.server.connection_count)


def versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1")


def principals(scene: SecureScene) -> list[str]:
    assert scene.broker is not None
    return [connection.requester.principal for connection in scene.broker.server.connections]
