"""Logins over the wire, against a broker on the test's own loop."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.frames import framed
from tests.security.conftest import SecureScene, log_in

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.security.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from odradek.security.sasl.plain import PlainClient
from odradek.security.sasl.scram import ScramClient, salted

SCRAM = "SCRAM-SHA-512"
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
METADATA = MetadataRequest(topics=None)


def alice(password: str = "secret", mechanism: str = SCRAM) -> ScramClient:
    return ScramClient(mechanism, "alice", password, "nonce")


async def test_who_logs_in_is_served_as_that_user(scene: SecureScene) -> None:
    await scene.secure("SASL_SSL")
    wire = await scene.wire(scene.pems.client_context())
    await wire.ask(VERSIONS, 3)
    assert (await log_in(wire, alice(), SCRAM)).error_code == 0
    assert (await wire.ask(METADATA, 9)).cluster_id
    (connection,) = scene.broker.server.connections  # type: ignore[union-attr]
    assert connection.requester.principal == "User:alice"
    assert (await wire.ask(VERSIONS, 3)).error_code == 0


@pytest.mark.check(9)
@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (METADATA, 9),
        (SaslAuthenticateRequest(auth_bytes=b"x"), 2),
        (DescribeUserScramCredentialsRequest(users=None), 0),
    ],
)
async def test_nothing_is_answered_before_a_login(scene: SecureScene, request_: Any, version: int) -> None:
    await scene.secure("SASL_PLAINTEXT")
    wire = await scene.wire()
    wire.ask_later(request_, version)
    assert await wire.closed_by_broker()


@pytest.mark.check(10)
async def test_a_second_greeting_and_a_second_handshake_end_the_connection(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    for request, version in ((VERSIONS, 3), (SaslHandshakeRequest(mechanism=SCRAM), 1)):
        wire = await scene.wire()
        await wire.ask(request, version)
        wire.ask_later(request, version)
        assert await wire.closed_by_broker()


@pytest.mark.check(11, 45)
async def test_before_a_login_requests_are_small(scene: SecureScene, caught: Callable[..., Any]) -> None:
    await scene.secure("SASL_PLAINTEXT", {"sasl.server.max.receive.size": "1000"})
    wire = await scene.wire()
    wire.send(struct.pack(">i", 1001))
    assert await wire.closed_by_broker()
    wire = await scene.wire()
    assert (await log_in(wire, alice(), SCRAM)).error_code == 0
    await wire.create("t")
    assert (await wire.produce("t", [b"x" * 100_000])).error_code == 0


@pytest.mark.check(12)
async def test_an_unknown_mechanism_is_answered_with_those_that_are_enabled(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    wire = await scene.wire()
    response = await wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert await wire.closed_by_broker()


@pytest.mark.check(13, 14, 18)
async def test_every_failed_login_gets_the_same_answer(scene: SecureScene, caplog: Any) -> None:
    await scene.secure("SASL_PLAINTEXT")
    answers = []
    for exchange in (alice("hunter2"), ScramClient(SCRAM, "nemo", "hunter2", "nonce")):
        wire = await scene.wire()
        response = await log_in(wire, exchange, SCRAM)
        answers.append((response.error_code, response.error_message, response.auth_bytes))
        assert await wire.closed_by_broker()
    assert answers[0] == answers[1]
    assert answers[0][0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "hunter2" not in caplog.text
    assert caplog.text.count("login_failed") == 2


@pytest.mark.check(13)
async def test_the_answer_to_a_failed_login_waits_and_no_one_else_does(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT", {"connection.failed.authentication.delay.ms": "600000"})
    failing, other = await scene.wire(), await scene.wire()
    await failing.ask(SaslHandshakeRequest(mechanism=SCRAM), 1)
    failing.ask_later(SaslAuthenticateRequest(auth_bytes=b"no SCRAM"), 2)
    assert (await log_in(other, alice(), SCRAM)).error_code == 0
    for _ in range(20):
        assert (await other.ask(METADATA, 9)).cluster_id
    assert not failing.has_arrived
    failing.abandon()


@pytest.mark.check(18)
@pytest.mark.parametrize("password", ["secret", "hunter2"])
async def test_a_password_of_plain_is_in_no_line_of_the_log(
    scene: SecureScene, caplog: Any, password: str
) -> None:
    caplog.set_level("DEBUG")
    jaas = 'x.PlainLoginModule required user_alice="secret";'
    await scene.secure(
        "SASL_PLAINTEXT",
        {
            "sasl.enabled.mechanisms": "PLAIN",
            "odradek.sasl.plain.without.tls.enable": "true",
            "sasl.jaas.config": jaas,
            "odradek.scram.first.users": "SCRAM-SHA-512=[name=bob,password=other]",
        },
    )
    wire = await scene.wire()
    response = await log_in(wire, PlainClient("alice", password), "PLAIN")
    assert (response.error_code == 0) is (password == "secret")
    assert caplog.records
    values = [str(record.__dict__) for record in caplog.records]
    assert not any(f"{text}" in line for line in values for text in ("hunter2", '"secret"', "'secret'"))


@pytest.mark.check(15)
async def test_who_does_not_log_in_is_hung_up_on(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT", {"odradek.sasl.login.timeout.ms": "50"})
    assert await (await scene.wire()).closed_by_broker()


@pytest.mark.check(16)
async def test_a_handshake_of_version_0_goes_on_with_bare_tokens(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    for password, is_right in (("secret", True), ("wrong", False)):
        wire = await scene.wire()
        await wire.ask(SaslHandshakeRequest(mechanism=SCRAM), 0)
        exchange, challenge = alice(password), b""
        while (token := exchange.step(challenge)) is not None:
            wire.send(framed(token))
            try:
                challenge = await wire.receive()
            except asyncio.IncompleteReadError:
                break
        assert exchange.is_done == is_right
        if is_right:
            assert (await wire.ask(METADATA, 9)).cluster_id


@pytest.mark.check(32, 33)
async def test_a_session_lasts_as_long_as_the_setting_says(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT", {"connections.max.reauth.ms": "1200"})
    wire = await scene.wire()
    assert (await log_in(wire, alice(), SCRAM)).session_lifetime_ms == 1200
    assert (await log_in(wire, alice(), SCRAM)).session_lifetime_ms == 1200
    again = await wire.ask(SaslHandshakeRequest(mechanism=SCRAM), 1)
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE, "not within a second"
    await asyncio.sleep(1.3)
    wire.ask_later(METADATA, 9)
    assert await wire.closed_by_broker()


async def test_a_listener_without_sasl_takes_no_login(scene: SecureScene) -> None:
    await scene.secure("PLAINTEXT")
    wire = await scene.wire()
    response = await wire.ask(SaslHandshakeRequest(mechanism=SCRAM), 1)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    response = await wire.ask(SaslAuthenticateRequest(auth_bytes=b"x"), 2)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


def upsertion(name: str, password: str, iterations: int = 4096, number: int = 2) -> ScramCredentialUpsertion:
    mechanism = {1: "SCRAM-SHA-256", 2: SCRAM}.get(number, SCRAM)
    return ScramCredentialUpsertion(
        name=name,
        mechanism=number,
        iterations=iterations,
        salt=b"saltsalt",
        salted_password=salted(mechanism, password, b"saltsalt", iterations),
    )


@pytest.mark.check(25)
async def test_credentials_are_set_described_and_deleted(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    wire = await scene.wire()
    await log_in(wire, alice(), SCRAM)
    request = AlterUserScramCredentialsRequest(
        upsertions=[upsertion("bob", "pw"), upsertion("weak", "pw", 100), upsertion("odd", "pw", number=7)],
        deletions=[ScramCredentialDeletion(name="nemo", mechanism=1)],
    )
    response = await wire.ask(request, 0)
    assert {entry.user: ErrorCode.of(entry.error_code) for entry in response.results} == {
        "nemo": ErrorCode.RESOURCE_NOT_FOUND,
        "bob": ErrorCode.NONE,
        "weak": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    }
    named = DescribeUserScramCredentialsRequest(users=[UserName(name="bob"), UserName(name="nemo")])
    described = await wire.ask(named, 0)
    assert [
        (entry_of_response.user, entry_of_response.error_code) for entry_of_response in described.results
    ] == [
        ("bob", 0),
        ("nemo", ErrorCode.RESOURCE_NOT_FOUND),
    ]
    assert [(info.mechanism, info.iterations) for info in described.results[0].credential_infos] == [
        (2, 4096)
    ]
    everyone = await wire.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    assert {every_entry.user for every_entry in everyone.results} == {"alice", "bob"}
    bob = await scene.wire()
    assert (await log_in(bob, ScramClient(SCRAM, "bob", "pw", "n"), SCRAM)).error_code == 0
    gone = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="bob", mechanism=2)])
    assert (await wire.ask(gone, 0)).results[0].error_code == 0
    bob = await scene.wire()
    response = await log_in(bob, ScramClient(SCRAM, "bob", "pw", "n"), SCRAM)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
