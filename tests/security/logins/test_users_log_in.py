"""Users that one client makes log in with another: names and passwords count byte by byte, as in Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka.admin
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from odradek import Admin
from odradek.cli.main import cli
from odradek.client.admin.users import NewPassword
from odradek.config.files.properties import format_properties
from odradek.model.errors import ErrorCode, KafkaError
from odradek.testing import LocalBroker

MECHANISM = "SCRAM-SHA-256"
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="admin-secret";'
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": MECHANISM,
    "odradek.scram.first.users": f"{MECHANISM}=[name=admin,password=admin-secret]",
    "sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "0",
}
PASSWORDS = ["plain", "m²5", "cafe\u0301", "café", "p\u00a0q", "ª½…", "\u00adx", "a,b=c", "\u0627\u0031"]
NAMES = ["ann", "a,b=c", "=2C=3D", "m²", "cafe\u0301", "two words", "x;y'z\"w", "User:ann"]
WRONG_NAMES = ["", "a\x07", "a\nb", "\x1b[31m", " ann", "ann ", "a\udcff"]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(SETTINGS) as local:
        yield local


def login(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
    }


def gets_in_with_ours(broker: LocalBroker, user: str, password: str) -> bool:
    try:
        with Admin.from_config({"bootstrap.servers": broker.address, **login(user, password)}) as admin:
            admin.list_topics()
    except KafkaError as error:
        if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise
        return False
    return True


def gets_in_with_librdkafka(broker: LocalBroker, user: str, password: str) -> bool:
    config = {"bootstrap.servers": broker.address, **login(user, password), "log_level": 0}
    try:
        AdminClient(config).list_topics(timeout=10)
    except confluent_kafka.KafkaException:
        return False
    return True


def made_by_ours(broker: LocalBroker, user: str, password: str) -> None:
    with Admin.from_config({"bootstrap.servers": broker.address, **login("admin", "admin-secret")}) as admin:
        admin.alter_users({user: NewPassword(password=password, mechanism=MECHANISM, iterations=4096)})


def made_by_librdkafka(broker: LocalBroker, user: str, password: str) -> None:
    client = AdminClient({"bootstrap.servers": broker.address, **login("admin", "admin-secret")})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    client.alter_user_scram_credentials([change])[user].result(60)


@pytest.mark.check(23)
@pytest.mark.parametrize("make", [made_by_ours, made_by_librdkafka])
def test_a_user_of_one_client_logs_in_with_the_other(broker: LocalBroker, make: object) -> None:
    assert callable(make)
    pairs = [(f"user{number}", password) for number, password in enumerate(PASSWORDS)]
    pairs += [(name, "secret") for name in NAMES]
    for user, password in pairs:
        make(broker, user, password)
        assert gets_in_with_ours(broker, user, password), (user, password)
        assert gets_in_with_librdkafka(broker, user, password), (user, password)
    assert not gets_in_with_ours(broker, "user1", "m25"), "what looks alike is another password"


def test_a_name_with_which_no_client_could_log_in_is_refused(broker: LocalBroker, tmp_path: Path) -> None:
    file = tmp_path / "admin.properties"
    file.write_text(format_properties(login("admin", "admin-secret")))
    file.chmod(0o600)
    reach = ["-b", broker.address, "--command-config", str(file), "--mechanism", MECHANISM]
    for name in WRONG_NAMES:
        run = CliRunner().invoke(
            cli, ["user", "add", "--password-stdin", *reach, "--", name], input="secret\n"
        )
        assert run.exit_code == 2, (name, run.output)
        assert "no client could log in with it" in run.output
    for name in NAMES:
        run = CliRunner().invoke(
            cli, ["user", "add", "--password-stdin", *reach, "--", name], input="other\n"
        )
        assert run.exit_code == 0, (name, run.output)
        assert gets_in_with_ours(broker, name, "other")
    with pytest.raises(KafkaError) as refused:
        made_by_ours(broker, "a\x07", "secret")
    assert refused.value.code is ErrorCode.UNACCEPTABLE_CREDENTIAL
