"""GSSAPI against a real KDC: our client, kafka-python, aiokafka and Java's client at a broker with a keytab."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka.admin
import kafka
import pytest
from benchmarks.peer import PeerAbsentError, cached_peer, java_program
from tests.security.conftest import SecureScene, log_in
from tests.security.kdc import REALM, Kdc, free_port, running_kdc

import odradek
from odradek.config.kerberos import KerberosIdentity
from odradek.config.loading import load_broker_config
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.testing import LocalBroker

gssapi = pytest.importorskip("gssapi", reason="absent: pip install 'odradek[kerberos]'")
from odradek.security.sasl.exchange import LoginRefused  # noqa: E402
from odradek.security.sasl.kerberos import KerberosAcceptor, KerberosClient, KerberosServer  # noqa: E402

SERVICE = f"kafka/localhost@{REALM}"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
JAVA_SECONDS = 60


def jaas(principal: str, keytab: str) -> str:
    return f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}";'


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(made.krb5_conf))
        patch.setenv("KRB5RCACHENAME", f"dfl:{made.directory}")
        patch.setenv("KRB5CCNAME", f"FILE:{made.directory}/tickets")
        yield made


@pytest.fixture(scope="module")
def keytabs(kdc: Kdc) -> dict[str, str]:
    return {principal: kdc.keytab(principal) for principal in ("kafka/localhost", "ann", "kafka/elsewhere")}


@pytest.fixture
def server(keytabs: dict[str, str]) -> Callable[[], KerberosServer]:
    identity = KerberosIdentity(principal=SERVICE, keytab=keytabs["kafka/localhost"], uses_keytab=True)
    return KerberosAcceptor(identity, ["DEFAULT"], others_may_read=False).exchange


def client_of(keytabs: dict[str, str], service: str = "kafka") -> KerberosClient:
    identity = KerberosIdentity(service=service, principal="ann", keytab=keytabs["ann"], uses_keytab=True)
    return KerberosClient(identity, "localhost")


def broker_settings(keytabs: dict[str, str]) -> dict[str, str]:
    port = free_port()
    return {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"SASL_PLAINTEXT://localhost:{port}",  # tickets are for names
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": jaas(SERVICE, keytabs["kafka/localhost"]),
    }


def ours(keytabs: dict[str, str], **changes: str) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_jaas_config": jaas(f"ann@{REALM}", keytabs["ann"]),
        **changes,
    }


@pytest.fixture(scope="module")
def broker(keytabs: dict[str, str]) -> Iterator[LocalBroker]:
    with LocalBroker(broker_settings(keytabs)) as made:
        yield made


def address(broker: LocalBroker) -> str:
    return f"localhost:{broker.address.rpartition(':')[2]}"


def chosen(theirs: KerberosServer, keytabs: dict[str, str], choice: bytes) -> Any:
    """The end of a login whose last message is of the test's own choice."""
    credentials = gssapi.Credentials(
        name=gssapi.Name("ann", gssapi.NameType.kerberos_principal),
        usage="initiate",
        store={"client_keytab": keytabs["ann"], "ccache": f"MEMORY:{keytabs['ann']}"},
    )
    service = gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service)
    mine = gssapi.SecurityContext(name=service, creds=credentials, usage="initiate")
    mine.step(theirs.step(mine.step()).challenge)
    theirs.step(b"")
    return theirs.step(mine.wrap(choice, False).message).end


def test_both_sides_prove_themselves(server: Any, keytabs: dict[str, str]) -> None:
    theirs, mine = server(), client_of(keytabs)
    accepted = theirs.step(mine.step(b""))
    assert mine.step(accepted.challenge) == b""
    offer = theirs.step(b"")
    end = theirs.step(mine.step(offer.challenge)).end
    assert end is not None
    assert end.user == "ann"
    assert mine.is_done


@pytest.mark.parametrize(
    "choice", [b"", b"\x01\0\0", b"\x02\0\0\0", b"\x04\0\0\0ann", b"\x01\0\0\0bob", b"\x01\0\0\0\xff"]
)
def test_a_layer_or_a_principal_that_may_not_be_chosen_is_refused(
    server: Any, keytabs: dict[str, str], choice: bytes
) -> None:
    with pytest.raises(LoginRefused):
        chosen(server(), keytabs, choice)


@pytest.mark.parametrize("acts_as", ["", "ann", f"ann@{REALM}", "kafka@localhost"])
def test_the_user_is_the_principal_that_proved_itself(
    server: Any, keytabs: dict[str, str], acts_as: str
) -> None:
    assert chosen(server(), keytabs, b"\x01\0\0\0" + acts_as.encode()).user == "ann"


def test_messages_that_are_none_or_come_again_are_refused(server: Any, keytabs: dict[str, str]) -> None:
    first = client_of(keytabs).step(b"")
    assert server().step(first).challenge
    for message in (b"", b"x", first[:-9] + b"123456789", first):  # the last one is a replay
        with pytest.raises(LoginRefused):
            server().step(message)
    mine, theirs = client_of(keytabs), server()
    mine.step(theirs.step(mine.step(b"")).challenge)
    with pytest.raises(LoginRefused, match="sends another token"):
        theirs.step(b"more")


def test_a_server_with_another_key_is_refused_by_the_client(kdc: Kdc, keytabs: dict[str, str]) -> None:
    mine = client_of(keytabs)
    mine.step(b"")
    with pytest.raises(LoginRefused):
        mine.step(b"not what the server would say")
    with pytest.raises(LoginRefused, match="not found in Kerberos database"):
        client_of(keytabs, "zookeeper").step(b"")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"sasl.jaas.config": f'{MODULE} useKeyTab=true keyTab="/nowhere" principal="{SERVICE}";'},
            "keytab '/nowhere'",
        ),
        ({"sasl.kerberos.principal.to.local.rules": "ALL"}, "'ALL' is no rule"),
    ],
)
async def test_a_broker_that_cannot_accept_does_not_start(
    scene: SecureScene, keytabs: dict[str, str], changes: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        await scene.secure("SASL_PLAINTEXT", {**broker_settings(keytabs), **changes})


async def test_a_keytab_that_everyone_can_read_is_refused(
    scene: SecureScene, kdc: Kdc, keytabs: dict[str, str]
) -> None:
    readable = kdc.directory / "readable.keytab"
    shutil.copy(keytabs["kafka/localhost"], readable)
    readable.chmod(0o644)
    with pytest.raises(ConfigError, match="every user of this machine can read it"):
        await scene.secure(
            "SASL_PLAINTEXT",
            {**broker_settings(keytabs), "sasl.jaas.config": jaas(SERVICE, str(readable))},
        )


async def test_what_the_wire_says_of_a_login_that_failed(scene: SecureScene, keytabs: dict[str, str]) -> None:
    await scene.secure("SASL_PLAINTEXT", broker_settings(keytabs))
    wire = await scene.wire()

    class Nonsense:
        is_done = False

        def step(self, challenge: bytes) -> bytes:
            return b"nonsense"

    refused = await log_in(wire, Nonsense(), "GSSAPI")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Kerberos" not in refused.error_message


def test_our_client_logs_in_by_keytab_and_by_ticket(
    broker: LocalBroker, kdc: Kdc, keytabs: dict[str, str], tmp_path: Path
) -> None:
    with odradek.Admin(address(broker), **ours(keytabs)) as admin:
        assert admin.describe_cluster().brokers
    cache = tmp_path / "tickets"
    kdc.kinit("ann", keytabs["ann"], cache)
    by_ticket = f'{MODULE} useTicketCache=true ticketCache="{cache}";'
    with odradek.Admin(address(broker), **ours(keytabs, sasl_jaas_config=by_ticket)) as admin:
        assert admin.describe_cluster().brokers


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sasl_kerberos_service_name": "zookeeper"}, "cannot log in .*not found in Kerberos database"),
        (
            {"sasl_jaas_config": f'{MODULE} useTicketCache=true ticketCache="/nowhere";'},
            "cannot log in .*Kerberos",
        ),
    ],
)
def test_errors_name_their_cause(
    broker: LocalBroker, keytabs: dict[str, str], changes: dict[str, str], words: str
) -> None:
    with (
        odradek.Admin(address(broker), **ours(keytabs, **changes)) as admin,
        pytest.raises(KafkaError, match=words),
    ):
        admin.describe_cluster()


def test_settings_that_do_not_fit_are_refused(keytabs: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"needs sasl\.kerberos\.service\.name"):
        odradek.Admin("x:1", **ours(keytabs, sasl_kerberos_service_name=""))
    conflicting = f'{MODULE} serviceName="other";'
    with pytest.raises(ConfigError, match="set one of them"):
        odradek.Admin("x:1", **ours(keytabs, sasl_jaas_config=conflicting))


async def test_brokers_log_in_to_each_other(kdc: Kdc, keytabs: dict[str, str], tmp_path: Path) -> None:
    settings = {
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "odradek.registry.dir": str(tmp_path / "registry"),
        "default.replication.factor": "2",
    }
    with (
        LocalBroker(
            {**broker_settings(keytabs), **settings, "node.id": "1", "log.dirs": str(tmp_path / "1")}
        ) as first,
        LocalBroker(
            {**broker_settings(keytabs), **settings, "node.id": "2", "log.dirs": str(tmp_path / "2")}
        ),
    ):
        async with odradek.AsyncAdmin(address(first), **ours(keytabs)) as admin:
            await admin.create_topics([odradek.NewTopic("both", 1, 2)])
            described = (await admin.describe_topics(["both"]))["both"]
        assert len(described.partitions[0].isr) == 2


@pytest.fixture
def ticket(kdc: Kdc, keytabs: dict[str, str]) -> None:
    kdc.kinit("ann", keytabs["ann"], kdc.directory / "tickets")


def test_kafka_python_logs_in(broker: LocalBroker, ticket: None) -> None:
    admin = kafka.KafkaAdminClient(
        bootstrap_servers=address(broker),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_domain_name="localhost",
    )
    assert admin.describe_cluster()
    admin.close()


async def test_aiokafka_logs_in(broker: LocalBroker, ticket: None) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=address(broker),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_domain_name="localhost",
    )
    await producer.start()
    await producer.send_and_wait("aio", b"x")
    await producer.stop()


def test_librdkafka_logs_in_where_it_is_built_with_gssapi(
    broker: LocalBroker, keytabs: dict[str, str]
) -> None:
    config = {
        "bootstrap.servers": address(broker),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "GSSAPI",
        "sasl.kerberos.principal": f"ann@{REALM}",
        "sasl.kerberos.keytab": keytabs["ann"],
    }
    try:
        admin = confluent_kafka.admin.AdminClient(config)
    except confluent_kafka.KafkaException as error:
        pytest.skip(f"absent: {error.args[0].str()}")
    assert admin.list_topics(timeout=20).brokers


@pytest.mark.interop
def test_javas_producer_logs_in(
    broker: LocalBroker, kdc: Kdc, keytabs: dict[str, str], tmp_path: Path
) -> None:
    try:
        jars = cached_peer()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={jaas(f'ann@{REALM}', keytabs['ann'])}\n"
    )
    command = [
        *java_program(jars, f"-Djava.security.krb5.conf={kdc.krb5_conf}"),
        "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server",
        address(broker),
        "--topic",
        "java",
    ]
    done = subprocess.run(
        [*command, "--command-config", str(config)],
        input="from java\n",
        capture_output=True,
        text=True,
        timeout=JAVA_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with odradek.Consumer(address(broker), **ours(keytabs), auto_offset_reset="earliest") as consumer:
        consumer.assign([odradek.TopicPartition("java", 0)])
        assert next(iter(consumer)).value == b"from java"


def test_a_listener_without_a_key_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"gssapi\.sasl\.jaas\.config"):
        load_broker_config({"listeners": "SASL_PLAINTEXT://:9093"})
