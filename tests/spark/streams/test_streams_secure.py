"""A program on a broker that asks for TLS, a login and access rules: with the rules that docs/streams.md names, and no more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.client.admin.users import NewPassword
from odradek.config.files.properties import format_properties
from odradek.model.ids import TopicPartition
from odradek.protocol.acls import AclResourceType
from odradek.security.acls import (
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    new_acl,
)
from odradek.spark import connection_options
from odradek.streams import Streams
from odradek.testing import LocalBroker

TIMEOUT_S = 300
APP = "secured"
RULES = (
    (AclResourceType.TOPIC, "orders", PatternType.LITERAL, ("READ",)),
    (AclResourceType.TOPIC, "totals", PatternType.LITERAL, ("READ", "WRITE", "DESCRIBE_CONFIGS")),
    (AclResourceType.TOPIC, f"{APP}.", PatternType.PREFIXED, ("READ", "WRITE", "CREATE")),
    (AclResourceType.TOPIC, "__odradek_sink_decisions", PatternType.LITERAL, ("READ", "CREATE")),
    (AclResourceType.TRANSACTIONAL_ID, f"odradek-sink.{APP}.", PatternType.PREFIXED, ("WRITE", "DESCRIBE")),
    (AclResourceType.GROUP, f"__odradek_sink.{APP}.", PatternType.PREFIXED, ("READ", "DELETE")),
)


def rules() -> Iterator[Acl]:
    for kind, name, pattern, operations in RULES:
        for operation in operations:
            yield new_acl(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                principal="User:ann",
                host="*",
                operation=AclOperation[operation],
                permission=AclPermission.ALLOW,
            )


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(secure=True, data=tmp_path / "data") as broker:
        yield broker


def test_a_program_logs_in_and_needs_the_rules_that_the_page_names(
    spark: SparkSession, secured: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = {"bootstrap.servers": secured.address, **secured.client_settings}
    login = {**secured.client_settings, "sasl.username": "ann", "sasl.password": "knows it"}
    file = tmp_path / "ann.properties"
    file.write_text(format_properties(login))
    file.chmod(0o600)
    with Admin.from_config(reach) as admin:
        admin.create_topics([NewTopic("orders", 1), NewTopic("totals", 1)])
        admin.alter_users({"ann": NewPassword(password="knows it")})
        admin.create_acls(list(rules()))

    monkeypatch.setenv("ODRADEK_CLIENT_CONFIG", str(file))
    app = Streams(APP, servers=secured.address, spark=spark, options=connection_options())
    orders = app.stream("orders", key="STRING", value="amount BIGINT")
    orders.group_by_key().agg("sum(amount) AS sum", name="sums").to("totals", name="totals")
    for round_number in range(3):
        with Producer.from_config(reach) as producer:
            producer.send("orders", b'{"amount": 2}', key=b"a", timestamp_ms=round_number)
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
