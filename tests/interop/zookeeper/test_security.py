"""Who gets in: access lists, digest and SASL logins, TLS; and that the refusals are sentences."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess

import pytest
from tests.kit.waiting import until

from odradek.model.errors import ConfigError
from odradek.registry import Create, Delete, Put, RegistryError
from odradek.testing.zookeeper import ZooKeeperServer, free_ports

LOGIN = {
    "zookeeper.set.acl": "true",
    "odradek.zookeeper.username": "broker",
    "odradek.zookeeper.password": "tomato",
}
NODES = ["/topics/flights", "/users/alice", "/brokers/ids/1"]


@pytest.fixture
def stranger(zookeeper):
    """A client of ZooKeeper that is no one."""
    from kazoo.client import KazooClient

    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


def _tree(client, path: str) -> list[str]:
    from kazoo.exceptions import NoAuthError

    try:
        below = client.get_children(path)
    except NoAuthError:
        return [path]
    return [path, *(child for name in below for child in _tree(client, f"{path}/{name}"))]


async def _fill(registry) -> None:
    for path in NODES:
        await registry.commit([Create(path=path, data=b"secret", ephemeral=path.startswith("/brokers"))])


async def test_with_access_lists_a_stranger_reads_and_changes_nothing(
    zookeeper, chroot, open_registry, stranger
) -> None:
    from kazoo.exceptions import NoAuthError
    from kazoo.security import OPEN_ACL_UNSAFE

    registry = await open_registry(zookeeper.address + chroot, **LOGIN)
    await _fill(registry)
    paths = [chroot, chroot + "/odradek"]
    for path in NODES:
        names = path.strip("/").split("/")
        paths += ["/".join([chroot, *names[:count]]) for count in range(1, len(names) + 1)]
    for path in paths:
        for attempt in (
            lambda path=path: stranger.get(path),
            lambda path=path: stranger.get_children(path),
            lambda path=path: stranger.set(path, b"mine"),
            lambda path=path: stranger.create(path + "/mine"),
            lambda path=path: stranger.set_acls(path, OPEN_ACL_UNSAFE),
        ):
            with pytest.raises(NoAuthError):
                await asyncio.to_thread(attempt)
    for path in paths[
        1:
    ]:  # what is at the top may be removed by all that may write above it, while it is empty
        with pytest.raises(NoAuthError):
            await asyncio.to_thread(stranger.delete, path)
    for path in NODES:
        assert (await registry.get(path)).data == b"secret"


async def test_those_who_log_in_alike_share_and_others_are_refused_in_one_line(
    zookeeper, chroot, open_registry
) -> None:
    first = await open_registry(zookeeper.address + chroot, **LOGIN)
    await _fill(first)
    second = await open_registry(zookeeper.address + chroot, **LOGIN)
    await second.commit([Put(path="/users/alice", data=b"2", version=0)])
    await first.sync()
    assert (await first.get("/users/alice")).data == b"2"
    for other in ({**LOGIN, "odradek.zookeeper.password": "potato"}, {}):
        with pytest.raises(RegistryError, match="refuses access") as caught:
            await open_registry(zookeeper.address + chroot, **other)
        assert "\n" not in str(caught.value)
        assert "potato" not in str(caught.value)


async def test_what_was_made_without_access_lists_is_closed_when_they_come(
    zookeeper, chroot, open_registry, stranger
) -> None:
    plain = await open_registry(zookeeper.address + chroot)
    await _fill(plain)
    before = await asyncio.to_thread(_tree, stranger, chroot)
    assert len(before) == 9
    secured = await open_registry(zookeeper.address + chroot, **LOGIN)
    for path in before:
        acl, _ = await asyncio.to_thread(_acl, zookeeper.address, path)
        assert [permission.id.scheme for permission in acl] == ["digest"]
    await secured.commit([Delete(path="/topics/flights", version=0)])


def _acl(address: str, path: str):
    from kazoo.client import KazooClient

    client = KazooClient(address, auth_data=[("digest", "broker:tomato")])
    client.start()
    try:
        return client.get_acls(path)
    finally:
        client.stop()
        client.close()


async def test_the_root_that_everyone_may_change_is_no_place_for_protected_znodes(
    zookeeper, open_registry
) -> None:
    with pytest.raises(RegistryError, match="a path of its own"):
        await open_registry(zookeeper.address, **LOGIN)


async def test_a_cluster_of_apache_kafka_is_left_alone(zookeeper, chroot, open_registry, stranger) -> None:
    await asyncio.to_thread(stranger.create, f"{chroot}/cluster/id", b"{}", makepath=True)
    with pytest.raises(RegistryError, match="holds a cluster of Apache Kafka"):
        await open_registry(zookeeper.address + chroot)
    assert await asyncio.to_thread(stranger.get_children, chroot) == ["cluster"]


@pytest.mark.parametrize(
    ("mark", "refusal"),
    [(b'{"format":99,"id":"x"}', "of a later version: upgrade"), (b"something else", "is not Odradek's")],
)
async def test_a_registry_that_is_not_understood_is_left_alone(
    zookeeper, chroot, open_registry, stranger, mark: bytes, refusal: str
) -> None:
    await asyncio.to_thread(stranger.create, f"{chroot}/odradek", mark, makepath=True)
    with pytest.raises(RegistryError, match=refusal):
        await open_registry(zookeeper.address + chroot)


# -- getting there


@pytest.mark.parametrize(
    ("connect", "reason"),
    [
        ("127.0.0.1:{closed}/x", "Connection refused"),
        ("nowhere.invalid:2181/x", "annot resolve nowhere.invalid"),
        ("127.0.0.1:{silent}/x", "connected, but not answered"),
    ],
)
async def test_an_unreachable_zookeeper_is_one_line_in_time(open_registry, connect: str, reason: str) -> None:
    (closed,) = free_ports(1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        where = connect.format(closed=closed, silent=silent.getsockname()[1])
        with pytest.raises(RegistryError) as caught:
            await open_registry(where, **{"zookeeper.connection.timeout.ms": "400"})
    said = str(caught.value)
    assert said.startswith(f"cannot reach ZooKeeper at {where.removesuffix('/x')} within 400 ms (")
    assert reason in said
    assert said.endswith("start it, or correct zookeeper.connect")


# -- SASL


@pytest.fixture(scope="module")
def sasl_zookeeper(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sasl")
    jaas = directory / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f'Server {{ {module} required user_broker="tomato"; }};\n')
    settings = {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    jvm = [f"-Djava.security.auth.login.config={jaas}"]
    with ZooKeeperServer(directory, settings=settings, jvm=jvm, durable=False) as server:
        yield server


SASL = {**LOGIN, "odradek.zookeeper.auth.scheme": "sasl"}


async def test_a_broker_logs_in_with_sasl(sasl_zookeeper, chroot, open_registry) -> None:
    registry = await open_registry(sasl_zookeeper.address + chroot, **SASL)
    await _fill(registry)
    assert (await registry.get("/users/alice")).data == b"secret"
    with pytest.raises(RegistryError, match="refuses access"):
        await open_registry(sasl_zookeeper.address + chroot)


async def test_a_wrong_password_for_sasl_is_one_line(sasl_zookeeper, chroot, open_registry) -> None:
    with pytest.raises(RegistryError, match="refuses the user 'broker': correct") as caught:
        await open_registry(
            sasl_zookeeper.address + chroot, **{**SASL, "odradek.zookeeper.password": "potato"}
        )
    assert "potato" not in str(caught.value)


async def test_a_sasl_session_that_was_cut_logs_in_again(
    sasl_zookeeper, chroot, open_registry, relay
) -> None:
    cable = await relay(sasl_zookeeper.address)
    registry = await open_registry(
        cable.address + chroot, **{**SASL, "zookeeper.session.timeout.ms": "20000"}
    )
    await _fill(registry)
    session = registry.session_id
    await cable.cut()
    await until(lambda: not registry.is_connected)
    await cable.heal()
    await registry.commit([Put(path="/users/alice", data=b"2", version=0)])
    assert registry.session_id == session


# -- TLS


def _openssl(directory, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)


def _certificate(directory, name: str, *, signed_by: str | None = None) -> None:
    """`name.pem` holds certificate and key, `name.crt` the certificate alone."""
    new = ("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-subj", f"/CN={name}")
    if signed_by is None:
        _openssl(directory, *new, "-x509", "-days", "2", "-out", f"{name}.crt")
    else:
        _openssl(directory, *new, "-out", f"{name}.csr")
        (directory / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\n")
        ca = ("-CA", f"{signed_by}.crt", "-CAkey", f"{signed_by}.key", "-CAcreateserial", "-days", "2")
        _openssl(
            directory,
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            *ca,
            "-extfile",
            f"{name}.ext",
            "-out",
            f"{name}.crt",
        )
    both = (directory / f"{name}.crt").read_text() + (directory / f"{name}.key").read_text()
    (directory / f"{name}.pem").write_text(both)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("absent: no openssl on the path")
    directory = tmp_path_factory.mktemp("certificates")
    _certificate(directory, "authority")
    _certificate(directory, "server", signed_by="authority")
    _certificate(directory, "broker", signed_by="authority")
    _certificate(directory, "impostor")
    return directory


@pytest.fixture(scope="module")
def tls_zookeeper(tmp_path_factory, certificates):
    """`(server, address)`; the address is where it talks TLS, and asks for certificates."""
    (port,) = free_ports(1)
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(certificates / "server.pem"),
        "ssl.trustStore.location": str(certificates / "authority.crt"),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.type": "PEM",
    }
    with ZooKeeperServer(tmp_path_factory.mktemp("tls"), settings=settings, durable=False) as server:
        yield server, f"127.0.0.1:{port}"


@pytest.fixture
def tls(certificates) -> dict[str, str]:
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.truststore.location": str(certificates / "authority.crt"),
        "zookeeper.ssl.keystore.location": str(certificates / "broker.pem"),
    }


async def test_a_broker_talks_tls_and_its_certificate_owns_the_znodes(
    tls_zookeeper, chroot, open_registry, tls, zookeeper
) -> None:
    server, address = tls_zookeeper
    registry = await open_registry(address + chroot, **tls, **{"zookeeper.set.acl": "true"})
    await _fill(registry)
    await asyncio.gather(
        *(registry.commit([Create(path=f"/many/{n}", data=b"x" * 5000)]) for n in range(100))
    )
    nodes = await asyncio.gather(*(registry.get(f"/many/{n}") for n in range(100)))
    assert {node.data for node in nodes} == {b"x" * 5000}
    with pytest.raises(RegistryError, match="refuses access"):
        await open_registry(server.address + chroot)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"zookeeper.ssl.truststore.location": "impostor.crt"}, "CERTIFICATE_VERIFY_FAILED"),
        ({"zookeeper.ssl.keystore.location": "impostor.pem"}, "connected, but not answered|no TLS"),
    ],
)
async def test_a_certificate_that_is_not_trusted_is_one_line(
    tls_zookeeper, chroot, open_registry, tls, certificates, change: dict[str, str], reason: str
) -> None:
    _, address = tls_zookeeper
    changed = {key: str(certificates / name) for key, name in change.items()}
    with pytest.raises(RegistryError, match="cannot reach ZooKeeper") as caught:
        await open_registry(address + chroot, **{**tls, **changed, "zookeeper.connection.timeout.ms": "1500"})
    assert any(words in str(caught.value) for words in reason.split("|"))


async def test_a_file_that_is_no_certificate_is_named(
    tls_zookeeper, chroot, open_registry, tls, tmp_path
) -> None:
    _, address = tls_zookeeper
    for key in ("zookeeper.ssl.truststore.location", "zookeeper.ssl.keystore.location"):
        for path in (tmp_path / "missing.pem", tmp_path):
            with pytest.raises(ConfigError, match=key):
                await open_registry(address + chroot, **{**tls, key: str(path)})
