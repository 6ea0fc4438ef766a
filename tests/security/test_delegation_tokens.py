"""Delegation tokens over the wire (KIP-48): made, seen, used, renewed, ended."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import until
from tests.security.conftest import Pems, SecureScene, log_in

import odradek
from odradek.cli.main import main
from odradek.config.files.properties import format_properties
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.protocol.messages.security.create_delegation_token import CreateDelegationTokenRequest
from odradek.protocol.messages.security.describe_delegation_token import DescribeDelegationTokenRequest
from odradek.security.acls import Acl, AclPattern
from odradek.security.sasl.scram import ScramClient
from odradek.testing import LocalBroker

pytestmark = pytest.mark.check(25)
SCRAM = "SCRAM-SHA-512"
TOKENS = {
    "delegation.token.secret.key": "the brokers' own",
    "delegation.token.expiry.check.interval.ms": "50",
}
USERS = ";".join(f"{SCRAM}=[name={name},password=secret]" for name in ("admin", "alice", "bob"))
SECONDS = 20


@pytest.fixture(scope="module")
def broker(pems: Pems, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": pems.broker,
        "sasl.enabled.mechanisms": f"SCRAM-SHA-256,{SCRAM}",
        "odradek.scram.first.users": USERS,
        "connection.failed.authentication.delay.ms": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        **TOKENS,
    }
    with LocalBroker(settings) as made:
        yield made


def user(pems: Pems, name: str) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": SCRAM,
        "sasl_username": name,
        "sasl_password": "secret",
        "ssl_truststore_location": pems.ca,
        "default_api_timeout_ms": SECONDS * 1000,
    }


def by_token(pems: Pems, jaas: str, mechanism: str = SCRAM) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": jaas,
        "ssl_truststore_location": pems.ca,
        "default_api_timeout_ms": SECONDS * 1000,
    }


def rule(operation: AclOperation, resource: AclResourceType, name: str) -> Acl:
    pattern = AclPattern(resource, name, PatternType.LITERAL)
    return Acl(pattern, "User:bob", "*", operation, AclPermission.ALLOW)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", SCRAM])
def test_a_token_acts_for_its_owner_until_it_is_over(broker: LocalBroker, pems: Pems, mechanism: str) -> None:
    with odradek.Admin(broker.address, **user(pems, "admin")) as admin:
        made = admin.create_delegation_token(renewers=["User:alice"])
        assert (made.owner, made.requester) == ("User:admin", "User:admin")
        topic = f"by-token-{mechanism.lower()}"
        with odradek.Admin(broker.address, **by_token(pems, made.jaas_config, mechanism)) as other:
            other.create_topics([topic])  # as a super user
            with pytest.raises(KafkaError) as caught:
                other.create_delegation_token()
            assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        admin.expire_delegation_token(made.hmac)
        with (
            odradek.Admin(broker.address, **by_token(pems, made.jaas_config, mechanism)) as other,
            pytest.raises(KafkaError, match="cannot log in"),
        ):
            other.describe_cluster()


def test_renewers_renew_and_others_do_not(broker: LocalBroker, pems: Pems) -> None:
    with odradek.Admin(broker.address, **user(pems, "admin")) as admin:
        made = admin.create_delegation_token(renewers=["User:alice"], max_lifetime_ms=3_600_000)
        with odradek.Admin(broker.address, **user(pems, "alice")) as alice:
            (seen,) = (
                known for known in alice.describe_delegation_tokens() if known.token_id == made.token_id
            )
            assert (seen.token_id, seen.hmac, seen.renewers) == (made.token_id, made.hmac, ("User:alice",))
            assert made.issued_ms < alice.renew_delegation_token(made.hmac, period_ms=60_000) < made.max_ms
        with odradek.Admin(broker.address, **user(pems, "bob")) as bob:
            assert made.token_id not in {known.token_id for known in bob.describe_delegation_tokens()}
            with pytest.raises(KafkaError) as caught:
                bob.expire_delegation_token(made.hmac)
            assert caught.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        admin.expire_delegation_token(made.hmac)
        with pytest.raises(KafkaError) as caught:
            admin.renew_delegation_token(made.hmac)
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_tokens_of_others_need_acls(broker: LocalBroker, pems: Pems) -> None:
    may_create = rule(AclOperation.CREATE_TOKENS, AclResourceType.USER, "User:alice")
    with (
        odradek.Admin(broker.address, **user(pems, "admin")) as admin,
        odradek.Admin(broker.address, **user(pems, "bob")) as bob,
    ):
        with pytest.raises(KafkaError) as caught:
            bob.create_delegation_token(owner="User:alice")
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        admin.create_acls([may_create])
        made = bob.create_delegation_token(owner="User:alice")
        assert (made.owner, made.requester) == ("User:alice", "User:bob")
        assert bob.describe_delegation_tokens() == []  # it is alice's
        admin.create_acls([rule(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, made.token_id)])
        assert [known.token_id for known in bob.describe_delegation_tokens(["User:alice"])] == [made.token_id]
        assert bob.describe_delegation_tokens(["User:bob"]) == []
        with pytest.raises(KafkaError) as caught:
            bob.create_delegation_token(owner="Group:alice")
        assert caught.value.code is ErrorCode.INVALID_PRINCIPAL_TYPE
        admin.create_acls([rule(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, "User:alice")])
        assert len(bob.describe_delegation_tokens()) == 1


async def test_without_a_login_or_a_key_there_are_no_tokens(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    wire = await scene.wire()
    assert (await log_in(wire, ScramClient(SCRAM, "alice", "secret", "nonce"), SCRAM)).error_code == 0
    for request in (
        CreateDelegationTokenRequest(max_lifetime_ms=-1),
        DescribeDelegationTokenRequest(owners=None),
    ):
        response = await wire.ask(request, 2)
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    await scene.stop()
    await scene.secure("PLAINTEXT", TOKENS)
    wire = await scene.wire()
    response = await wire.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_a_session_ends_with_its_token_and_the_token_is_removed(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT", TOKENS)
    assert scene.broker is not None
    wire = await scene.wire()
    assert (await log_in(wire, ScramClient(SCRAM, "alice", "secret", "nonce"), SCRAM)).error_code == 0
    shown = await wire.ask(DescribeDelegationTokenRequest(owners=None), 2)
    assert shown.tokens == []
    request = CreateDelegationTokenRequest(max_lifetime_ms=1500)
    made = await wire.ask(request, 1)
    assert made.error_code == 0
    shown = await wire.ask(DescribeDelegationTokenRequest(owners=None), 1)
    assert [known.token_id for known in shown.tokens] == [made.token_id]
    password = base64.b64encode(made.hmac).decode()
    other = await scene.wire()
    exchange = ScramClient(SCRAM, made.token_id, password, "nonce", is_token=True)
    last_reply = await log_in(other, exchange, SCRAM)
    assert 0 < last_reply.session_lifetime_ms <= 1500
    await until(lambda: not scene.broker.context.image.delegation_tokens)
    again = await scene.wire()
    exchange = ScramClient(SCRAM, made.token_id, password, "nonce", is_token=True)
    refused = await log_in(again, exchange, SCRAM)
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_the_command_makes_shows_renews_and_ends_a_token(
    broker: LocalBroker, pems: Pems, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "client.properties"
    jaas = (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="secret";'
    )
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": SCRAM, "sasl.jaas.config": jaas}
    config.write_text(format_properties(settings | {"ssl.truststore.location": pems.ca}))
    config.chmod(0o600)

    def token(*words: str) -> str:
        assert main(["token", *words, "--command-config", str(config), "-b", broker.address]) == 0
        return capsys.readouterr().out

    made = json.loads(token("create", "--renewer", "User:alice", "--max-lifetime", "1h", "--json"))
    assert (made["owner"], made["renewers"]) == ("User:admin", ["User:alice"])
    shown = token("list", "--owner", "User:admin")
    assert made["id"] in shown
    assert made["hmac"] not in shown
    token("renew", made["id"], "--period", "10m")
    token("expire", made["id"])
    assert made["id"] not in token("list")
    with odradek.Admin(broker.address, **by_token(pems, token("create", "--jaas").strip())) as other:
        assert other.describe_cluster().brokers
