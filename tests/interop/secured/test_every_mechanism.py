"""Unmodified clients log in with each mechanism they have: who may write, who may only look, and who has a wrong secret.

The program of each client tries all of them in one process. `README.md` has the table.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import kafka.net.sasl.oauth
import pytest
from benchmarks.peer import PeerAbsentError, cached_peer, java_program
from tests.interop.adapters import AbsentError, KcatClient
from tests.interop.adapters.rows import RefusedError
from tests.interop.languages.applications import APPLICATIONS, STREAMS_LOGINS, spark_logins
from tests.interop.languages.prepare import LANGUAGES
from tests.interop.languages.prepare import AbsentError as ProgramAbsentError
from tests.interop.logins import Lock, LockedNode
from tests.interop.server import Server
from tests.security.test_in_a_broker import fresh
from tests.security.test_mechanisms import JWKS

import odradek
from odradek.client import LATEST
from odradek.config.files.properties import format_properties
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acls import Acl, AclPattern

PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*PASSWORDS, "OAUTHBEARER")
WRITER, READER, SECRET = "writer", "reader", "knows-it"
TOPIC = "behind-the-door"
LINES = "lines"
"""What Streams copies from."""
FIRST_APPLICATION = 4
"""Streams applications are called `streams-4` and so on, by the arguments' numbers."""
SECONDS = 90
MODULES = "org.apache.kafka.common.security"
WRITTEN = r"written\Z"
FORBIDDEN = r"(?is).*not authorized to access t|.*topic.?authorization"
STRANGER = r"(?is).*(authentication.?failed|cannot log in|invalid credentials)"
TOKEN_REFUSED = r".*(closed connection|unexpected data in oauth response|unable to bootstrap)"
"""The answer that refuses a token asks for one more step (RFC 7628), which not all clients take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One login, in the words of every client."""

    mechanism: str
    user: str
    password: str
    token: str
    authority: str
    token_file: Path

    def for_python(self) -> dict[str, Any]:
        """Returns the settings of aiokafka and kafka-python for this login, without the certificate."""
        login: dict[str, Any] = {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return {"security_protocol": "SASL_SSL", "sasl_mechanism": self.mechanism, **login}

    def for_librdkafka(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority,
            "sasl.mechanism": self.mechanism,
        }
        if self.mechanism == "OAUTHBEARER":
            return settings | {"oauth_cb": lambda config: (self.token, time.time() + SECONDS)}
        return settings | {"sasl.username": self.user, "sasl.password": self.password}

    def for_java(self) -> dict[str, str]:
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "sasl.mechanism": self.mechanism,
        }
        if self.mechanism == "OAUTHBEARER":
            oauth = f"{MODULES}.oauthbearer"
            return settings | {
                "sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": self.token_file.as_uri(),
            }
        module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = f'{MODULES}.{module} required username="{self.user}" password="{self.password}";'
        return settings | {"sasl.jaas.config": login}

    def for_programs(self) -> dict[str, Any]:
        plain = {"mechanism": self.mechanism, "user": self.user, "password": self.password}
        return {**plain, "token": self.token, "java": self.for_java()}


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Lock:
    return Lock.made_in(tmp_path_factory.mktemp("lock"))


@pytest.fixture(scope="module")
def server(lock: Lock) -> Iterator[Server]:
    """A broker with all four mechanisms, and one topic."""
    keys = lock.directory / "jwks.json"
    keys.write_text(json.dumps(JWKS), encoding="utf-8")
    base = lock.broker_settings()
    names = (WRITER, READER)
    scram = [f"{mechanism}=[name={name},password={SECRET}]" for mechanism in PASSWORDS[1:] for name in names]
    plain = " ".join(f'user_{name}="{SECRET}"' for name in names)
    settings = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "odradek.scram.first.users": ";".join([base["odradek.scram.first.users"], *scram]),
        "listener.name.plaintext.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {plain};",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "connection.failed.authentication.delay.ms": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    node = LockedNode(lock, settings=settings).start()
    try:
        made = Server(kind="odradek", node=node)
        made.create_topic(TOPIC)
        pattern = AclPattern(AclResourceType.TOPIC, TOPIC, PatternType.LITERAL)
        allowed = [(WRITER, AclOperation.WRITE), (READER, AclOperation.DESCRIBE)]
        rules = [
            Acl(pattern, f"User:{name}", "*", operation, AclPermission.ALLOW) for name, operation in allowed
        ]
        admin_login = {"bootstrap.servers": node.bootstrap, **lock.client_settings("admin")}
        with odradek.Admin.from_config(admin_login) as admin:
            admin.create_acls(rules)
        yield made
    finally:
        node.stop()


@pytest.fixture
def attempts(lock: Lock, tmp_path: Path) -> Callable[[Sequence[str]], list[Attempt]]:
    """Three for each mechanism: who may write, who may only look, and the writer with a secret that is wrong."""

    def make(mechanisms: Sequence[str]) -> list[Attempt]:
        made = []
        for mechanism in mechanisms:
            for user, is_right in ((WRITER, True), (READER, True), (WRITER, False)):
                token = fresh(SECONDS, sub=user) if is_right else fresh(SECONDS, sub=user, aud="elsewhere")
                file = tmp_path / f"{mechanism}-{user}-{is_right}.jwt"
                file.write_text(token, encoding="ascii")
                made.append(
                    Attempt(
                        mechanism=mechanism,
                        user=user,
                        password=SECRET if is_right else "does-not-know-it",
                        token=token,
                        authority=str(lock.authority),
                        token_file=file,
                    )
                )
        return made

    return make


def check(mechanisms: Sequence[str], outcomes: Sequence[str]) -> None:
    assert len(outcomes) == 3 * len(mechanisms)
    for number, outcome in enumerate(outcomes):
        mechanism = mechanisms[number // 3]
        stranger = f"{STRANGER}|{TOKEN_REFUSED}" if mechanism == "OAUTHBEARER" else STRANGER
        expected = (WRITTEN, FORBIDDEN, stranger)[number % 3]
        assert re.match(expected, outcome), f"{mechanism}: {outcome!r} is not {expected!r}"


def test_librdkafka(server: Server, attempts: Any) -> None:
    def write(attempt: Attempt) -> str:
        words: list[str] = []
        settings = {"bootstrap.servers": server.node.bootstrap, **attempt.for_librdkafka(), "log_level": 0}
        producer = confluent_kafka.Producer(
            {**settings, "error_cb": lambda error: words.append(str(error)), "reconnect.backoff.max.ms": 100}
        )
        producer.produce(TOPIC, b"x", on_delivery=lambda error, _: words.append(str(error or "written")))
        deadline = time.monotonic() + SECONDS
        while not words and time.monotonic() < deadline:
            producer.poll(0.1)
        producer.purge()  # it would try again until the record is too old
        first = words[0]
        producer.flush(SECONDS)
        return first

    check(MECHANISMS, [write(attempt) for attempt in attempts(MECHANISMS)])


def test_kcat(server: Server, attempts: Any) -> None:
    """Debian has a librdkafka before 2.6.1, whose nonce Kafka 4 refuses, too (SCRAM). Tokens need a callback."""

    def write(attempt: Attempt) -> str:
        try:
            client = KcatClient(server.node.bootstrap)
        except AbsentError as reason:
            pytest.skip(f"absent: {reason}")
        login = {**attempt.for_librdkafka(), "message.timeout.ms": 3_000}
        flags = [part for key, value in login.items() for part in ("-X", f"{key}={value}")]
        try:
            client.run("-P", "-t", TOPIC, "-p", "0", *flags, given=b"x\n")
        except RefusedError as refused:
            return str(refused)
        return "written"

    check(("PLAIN",), [write(attempt) for attempt in attempts(("PLAIN",))])


class AioToken(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


async def test_aiokafka(server: Server, attempts: Any, lock: Lock, caplog: pytest.LogCaptureFixture) -> None:
    """Its log has the reason."""

    async def write(attempt: Attempt) -> str:
        caplog.clear()
        settings = {"ssl_context": lock.client_context(), **attempt.for_python()}
        if attempt.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = AioToken(attempt.token)
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=server.node.bootstrap, **settings)
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"x")
        except aiokafka.errors.KafkaError as error:
            return f"{error!r}: {caplog.text}"
        finally:
            await producer.stop()
        return "written"

    check(MECHANISMS, [await write(attempt) for attempt in attempts(MECHANISMS)])


class PureToken(kafka.net.sasl.oauth.AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def test_kafka_python(server: Server, attempts: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Its log has the reason; it tries again until `bootstrap_timeout_ms`."""

    def write(attempt: Attempt) -> str:
        caplog.clear()
        settings = {"ssl_cafile": attempt.authority, **attempt.for_python(), "enable_idempotence": False}
        if attempt.password != SECRET:
            settings["bootstrap_timeout_ms"] = 300
        if attempt.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = PureToken(attempt.token)
        try:
            producer = kafka.KafkaProducer(bootstrap_servers=server.node.bootstrap, **settings)
        except kafka.errors.KafkaError as error:
            return f"{error!r}: {caplog.text}"
        try:
            producer.send(TOPIC, b"x").get(SECONDS)
        except kafka.errors.KafkaError as error:
            return repr(error)
        finally:
            producer.close(timeout=1)
        return "written"

    check(MECHANISMS, [write(attempt) for attempt in attempts(MECHANISMS)])


def test_our_client(server: Server, attempts: Any) -> None:
    def write(attempt: Attempt) -> str:
        settings = attempt.for_librdkafka()
        if attempt.mechanism == "OAUTHBEARER":
            del settings["oauth_cb"]
            settings["sasl.oauthbearer.token"] = attempt.token
        login = {"bootstrap.servers": server.node.bootstrap, **settings, "enable.idempotence": False}
        with odradek.Producer.from_config(login) as producer:
            try:
                producer.send(TOPIC, b"x").result(SECONDS)
            except KafkaError as error:
                return str(error)
        return "written"

    check(MECHANISMS, [write(attempt) for attempt in attempts(MECHANISMS)])


@pytest.mark.parametrize("language", list(LANGUAGES))
def test_a_program(server: Server, attempts: Any, lock: Lock, language: str) -> None:
    """franz-go, sarama, kafkajs, Kafka's Java client."""
    try:
        command = LANGUAGES[language].ready()
    except ProgramAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    logins = [attempt.for_programs() for attempt in attempts(MECHANISMS)]
    given = {"topic": TOPIC, "ca": str(lock.authority), "logins": logins}
    process = subprocess.run(
        [*command, "logins", server.node.bootstrap, json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr[-4000:]
    check(MECHANISMS, json.loads(process.stdout.strip().splitlines()[-1])["outcomes"])


@pytest.mark.slow
def test_kafkas_own_tools(server: Server, attempts: Any, tmp_path: Path) -> None:
    """kafka-console-producer; each attempt is a JVM."""
    try:
        jars = cached_peer()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")

    def write(attempt: Attempt) -> str:
        config = tmp_path / "client.properties"
        more = {"enable.idempotence": "false", "max.block.ms": "20000"}
        config.write_text(format_properties({**attempt.for_java(), **more}), encoding="utf-8")
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={attempt.token_file.as_uri()}"
        tool = ["org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", server.node.bootstrap]
        process = subprocess.run(
            [*java_program(jars, allowed), *tool, "--topic", TOPIC, "--command-config", str(config)],
            input="x\n",
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        words = process.stdout + process.stderr
        return words if process.returncode or "rror" in words else "written"

    check(MECHANISMS, [write(attempt) for attempt in attempts(MECHANISMS)])


@pytest.mark.slow
def test_kafka_streams(server: Server, attempts: Any, lock: Lock, tmp_path: Path) -> None:
    """Each application reads a topic as a group, and copies it."""
    try:
        command = APPLICATIONS["kafka-streams"].ready()
    except ProgramAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    admin_login = {"bootstrap.servers": server.node.bootstrap, **lock.client_settings("admin")}
    server.create_topic(LINES)
    with odradek.Admin.from_config(admin_login) as admin:
        admin.create_acls(
            [*readers_of(AclResourceType.TOPIC, LINES), *readers_of(AclResourceType.GROUP, "streams-")]
        )
    with odradek.Producer.from_config(admin_login) as producer:
        producer.send(LINES, b"copied").result(SECONDS)
    made = attempts(MECHANISMS)
    files = [tmp_path / f"{number}.properties" for number in range(len(made))]
    for file, attempt in zip(files, made, strict=True):
        file.write_text(format_properties(attempt.for_java()), encoding="utf-8")
    before = count_of(admin_login)
    arguments = (server.node.bootstrap, LINES, TOPIC, str(tmp_path / "state"), *map(str, files))
    output = finished([*command, STREAMS_LOGINS, *arguments], tmp_path)
    check(MECHANISMS, re.findall(r"^outcome: (.*)$", output, re.MULTILINE))
    copied = [f"copied by streams-{FIRST_APPLICATION + 3 * number}" for number in range(len(MECHANISMS))]
    assert values_from(admin_login, before) == copied


@pytest.mark.slow
def test_sparks_jvm_connector(server: Server, attempts: Any, lock: Lock, tmp_path: Path) -> None:
    try:
        command = spark_logins()
    except ProgramAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    admin_login = {"bootstrap.servers": server.node.bootstrap, **lock.client_settings("admin")}
    before = count_of(admin_login)
    bounded = {"max.block.ms": "20000", "enable.idempotence": "false"}
    logins = json.dumps([attempt.for_java() | bounded for attempt in attempts(PASSWORDS)])
    finished([*command, server.node.bootstrap, TOPIC, str(tmp_path), logins], tmp_path)
    check(PASSWORDS, json.loads((tmp_path / "seen.json").read_text()))
    assert values_from(admin_login, before) == [f"spark {3 * number}" for number in range(len(PASSWORDS))]


def readers_of(resource: AclResourceType, name: str) -> list[Acl]:
    """Both users may read what is called so, or begins so."""
    pattern = AclPattern(resource, name, PatternType.PREFIXED)
    return [
        Acl(pattern, f"User:{user}", "*", AclOperation.READ, AclPermission.ALLOW) for user in (WRITER, READER)
    ]


def finished(command: Sequence[str], directory: Path) -> str:
    """What the program printed."""
    process = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=3 * SECONDS, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr[-4000:]
    return process.stdout


def count_of(login: dict[str, Any]) -> int:
    partition = TopicPartition(TOPIC, 0)
    with odradek.Admin.from_config(login) as admin:
        return admin.list_offsets({partition: LATEST})[partition].offset


def values_from(login: dict[str, Any], offset: int) -> list[str]:
    partition = TopicPartition(TOPIC, 0)
    end = count_of(login)
    values: list[str] = []
    with odradek.Consumer.from_config({**login, "enable.auto.commit": False}) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, offset)
        while consumer.position(partition, SECONDS) < end:
            values += [(record.value or b"").decode() for record in consumer.poll(1.0)]
    return values
