"""kafka-delegation-tokens makes, renews, shows and ends tokens; Java's own client logs in with one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.kafka_tools.tools import Tools

import odradek
from odradek.testing import LocalBroker

pytestmark = pytest.mark.interop
USERS = "SCRAM-SHA-512=[name=admin,password=secret];SCRAM-SHA-512=[name=alice,password=secret]"
LOGIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={jaas}
"""
ADMIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="secret";'
Java = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "odradek.scram.first.users": USERS,
        "delegation.token.secret.key": "the brokers' own",
    }
    with LocalBroker(settings) as made:
        yield made


@pytest.fixture
def java(broker: LocalBroker, tools: Tools, tmp_path: Path) -> Java:
    def run(main_class: str, jaas: str, *arguments: str) -> str:
        config = tmp_path / "client.properties"
        config.write_text(LOGIN.format(jaas=jaas))
        flags = ("--bootstrap-server", broker.address, "--command-config", str(config))
        outcome = tools.run(main_class, *flags, *arguments)
        assert outcome.status == 0, outcome.terminal
        return outcome.terminal

    return run


def test_kafkas_tool_makes_a_token_that_javas_client_logs_in_with(java: Java, broker: LocalBroker) -> None:
    tool = "org.apache.kafka.tools.DelegationTokenCommand"
    made = java(tool, ADMIN, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:alice")
    row = re.search(r"^(\S{22})\s+(\S{86}==)\s+User:admin", made, re.MULTILINE)
    assert row is not None, made
    token_id, hmac = row.groups()
    shown = java(tool, ADMIN, "--describe", "--owner-principal", "User:admin")
    assert token_id in shown
    assert "User:alice" in shown
    java(tool, ADMIN, "--renew", "--hmac", hmac, "--renew-time-period", "-1")
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token_id}" password="{hmac}" tokenauth="true";'
    )
    java("org.apache.kafka.tools.TopicCommand", jaas, "--create", "--topic", "by-token")
    secured = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_jaas_config": ADMIN,
    }
    with odradek.Admin(broker.address, **secured) as admin:  # type: ignore[arg-type]
        assert "by-token" in admin.list_topics()
    java(tool, ADMIN, "--expire", "--hmac", hmac, "--expiry-time-period", "-1")
    assert token_id not in java(tool, ADMIN, "--describe")
