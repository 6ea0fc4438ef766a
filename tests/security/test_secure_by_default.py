"""`serve --secure`, `user`, `cert`, `LocalBroker(secure=True)`: what a newcomer uses."""

import re
import stat
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from click.testing import CliRunner
from tests.kit.waiting import eventually

import odradek
from odradek.cli.main import cli
from odradek.cli.serving.cert import cert
from odradek.cli.serving.secure import secure_source, write_private
from odradek.client.admin.users import NewPassword
from odradek.config.loading import load_broker_config
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.testing import LocalBroker


def secrets_of(directory: Path) -> set[str]:
    return {
        path.name for path in directory.iterdir() if not path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
    }


@pytest.mark.check(47, 48)
def test_secure_makes_what_it_needs_once_and_says_the_password_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "keys"
    first = secure_source(str(place), "127.0.0.1:0")
    said = capsys.readouterr().err
    password = re.search(r"its password (\S+)", said)
    assert password is not None
    assert secrets_of(place) >= {"ca.key", "broker.pem", "client.properties", "server.properties"}
    again = secure_source(str(place), "127.0.0.1:0")
    assert again == first
    assert capsys.readouterr().err == ""
    config, warnings = load_broker_config(first.values)
    assert warnings == []
    assert password[1] not in repr(config)


@pytest.mark.check(48)
def test_a_file_with_a_secret_is_for_its_owner_also_where_there_was_one_already(tmp_path: Path) -> None:
    file, link = tmp_path / "client.properties", tmp_path / "link"
    file.touch(0o644)
    write_private(file, b"password=1")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == b"password=1"
    link.symlink_to(file)
    with pytest.raises(OSError, match="symbolic links"):
        write_private(link, b"")


@pytest.mark.check(18, 47)
def test_a_newcomer_logs_in_and_adds_users(tmp_path: Path) -> None:
    with LocalBroker(data=tmp_path, secure=True) as broker:
        config: dict[str, Any] = {"bootstrap.servers": broker.address, **broker.client_settings}
        assert confluent_kafka.admin.AdminClient(config).list_topics(timeout=20).brokers
        file = str(tmp_path / "secure" / "client.properties")
        reach = ["-b", broker.address, "--command-config", file]
        run = CliRunner().invoke(cli, ["user", "add", "ann", "--password-stdin", *reach], input="hunter2\n")
        assert run.exit_code == 0, run.output
        assert "hunter2" not in run.output
        run = CliRunner().invoke(cli, ["user", "list", *reach])
        assert re.search(r"ann +SCRAM-SHA-512 +8192", run.output)
        assert CliRunner().invoke(cli, ["topic", "create", "t", *reach]).exit_code == 0
        settings = str(tmp_path / "secure" / "server.properties")
        examined = CliRunner().invoke(cli, ["doctor", settings, *reach]).output
        assert f"ok    broker at {broker.address}" in examined
        assert "has no effect" not in examined
        ann = {**config, "sasl.username": "ann", "sasl.password": "hunter2"}
        with odradek.Producer.from_config(ann) as producer, pytest.raises(KafkaError) as refused:
            producer.send("t", b"x").result(20)
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with odradek.Admin.from_config(config) as admin:
            resource = odradek.client.ConfigResource.broker(1)
            shown = admin.describe_configs([resource])[resource]
            assert shown["sasl.jaas.config"].value is None
            assert shown["odradek.scram.first.users"].value is None
            admin.alter_users({"ann": "SCRAM-SHA-512"})
            assert "ann" not in admin.describe_users()
            with pytest.raises(KafkaError):
                admin.alter_users({"x": NewPassword(password="p", iterations=1)})


@pytest.mark.check(47)
def test_the_audit_of_a_secured_cluster_is_read_with_a_login(tmp_path: Path) -> None:
    with LocalBroker({"odradek.audit.sinks": "topic"}, data=tmp_path, secure=True) as broker:
        file = tmp_path / "secure" / "client.properties"
        file.write_text(f"bootstrap.servers={broker.address}\n{file.read_text('utf-8')}", "utf-8")
        login = ["--command-config", str(file)]
        created = CliRunner().invoke(cli, ["topic", "create", "orders", *login])
        assert created.exit_code == 0, created.output
        output = eventually(
            lambda: CliRunner().invoke(cli, ["audit", "search", "--api", "CreateTopics", *login]).output,
            holds=lambda output: "CreateTopics TOPIC:orders" in output,
        )
        assert "change done User:admin" in output
        elsewhere = CliRunner().invoke(cli, ["topic", "list", *login, "-b", "127.0.0.1:1"])
        assert "127.0.0.1:1" in str(elsewhere.exception), "what is said counts"


def test_a_command_says_why_it_cannot_log_in(tmp_path: Path) -> None:
    with LocalBroker(data=tmp_path, secure=True) as broker:
        file = tmp_path / "wrong.properties"
        right = (tmp_path / "secure" / "client.properties").read_text()
        file.write_text(re.sub(r'password="[^"]*"', 'password="no"', right).replace('password\\="', "x"))
        file.chmod(0o600)
        command = ["topic", "list", "-b", broker.address, "--command-config", str(file)]
        refused = CliRunner().invoke(cli, command)
        assert isinstance(refused.exception, OdradekError)
        assert "user or password is wrong" in str(refused.exception)
        file.chmod(0o644)
        assert "every user of this machine can read it" in str(CliRunner().invoke(cli, command).exception)


def test_certificates_are_made_and_shown(tmp_path: Path) -> None:
    made = CliRunner().invoke(cert, ["issue", "b1", "--dir", str(tmp_path), "--host", "b1.example"])
    assert made.exit_code == 0, made.output
    assert secrets_of(tmp_path) == {"ca.key", "b1.pem"}
    shown = CliRunner().invoke(cert, ["show", str(tmp_path / "b1.pem")]).output
    assert "subject  CN=b1" in shown
    assert "b1.example" in shown


def test_the_file_for_clients_names_all_brokers_of_one_command(tmp_path: Path) -> None:
    secure_source(str(tmp_path), "127.0.0.1:19092", is_quiet=True, brokers=3)
    file = (tmp_path / "client.properties").read_text("utf-8").replace("\\", "")
    assert "bootstrap.servers=127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094\n" in file
