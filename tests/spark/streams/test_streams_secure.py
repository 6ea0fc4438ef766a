"""A program on a broker that asks for TLS, a login and access rules: with the rules that docs/streams.md names, and no more."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from odradek.cli.main import cli
from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.client.admin.users import NewPassword
from odradek.config.files.properties import format_properties
from odradek.model.ids import TopicPartition
from odradek.spark import connection_options
from odradek.streams import Streams
from odradek.testing import LocalBroker

TIMEOUT_S = 300
PAGE = Path(__file__).parents[3] / "docs" / "streams.md"


def commands() -> list[list[str]]:
    """The words after `odradek` of each rule on the page."""
    lines = PAGE.read_text("utf-8").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("odradek acl add ann ")]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(secure=True, data=tmp_path / "data") as broker:
        yield broker


def test_a_program_logs_in_and_needs_the_rules_that_the_page_names(
    spark: SparkSession, secured: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = {"bootstrap.servers": secured.address, **secured.client_settings}
    login = {**secured.client_settings, "sasl.username": "ann", "sasl.password": "knows it"}
    file, admin_file = tmp_path / "ann.properties", tmp_path / "admin.properties"
    for path, settings in ((file, login), (admin_file, secured.client_settings)):
        path.write_text(format_properties(settings))
        path.chmod(0o600)
    with Admin.from_config(reach) as admin:
        admin.create_topics([NewTopic("sales", 1), NewTopic("totals", 1)])
        admin.alter_users({"ann": NewPassword(password="knows it")})
    assert len(commands()) == 6
    for words in commands():
        added = CliRunner().invoke(cli, [*words, "-b", secured.address, "--command-config", str(admin_file)])
        assert added.exit_code == 0, added.output

    monkeypatch.setenv("ODRADEK_CLIENT_CONFIG", str(file))
    app = Streams("orders", servers=secured.address, spark=spark, options=connection_options())
    sales = app.stream("sales", key="STRING", value="amount BIGINT")
    sales.group_by_key().agg("sum(amount) AS sum", name="sums").to("totals", name="totals")
    for round_number in range(3):
        with Producer.from_config(reach) as producer:
            producer.send("sales", b'{"amount": 2}', key=b"a", timestamp_ms=round_number)
        with app.start(checkpoint=str(tmp_path / "checkpoint"), until_now=True) as run:
            assert run.wait(TIMEOUT_S)
            if round_number == 2:
                view = run["totals"]
                view.wait_until("now")
                assert view["a"] == {"sum": 6}
        if round_number == 1:
            shutil.rmtree(tmp_path / "checkpoint")
    with Consumer.from_config({**reach, "isolation.level": "read_committed"}) as consumer:
        consumer.assign([TopicPartition("totals", 0)])
        consumer.seek_to_beginning()
        rows = [json.loads(record.value or b"null") for record in consumer.poll(10.0)]
    assert rows[-1] == {"sum": 6}
