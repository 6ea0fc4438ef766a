"""What a client may send when: each state of a connection with logins is reached at a real broker, and left by a wrong turn."""

import struct
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.kit.frames import framed
from tests.kit.wire import Wire
from tests.security.conftest import SecureScene, log_in

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from odradek.security.sasl.plain import PlainClient
from odradek.security.sasl.scram import ScramClient

WEAK, STRONG = "SCRAM-SHA-256", "SCRAM-SHA-512"
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
METADATA = MetadataRequest(topics=None)
BOB: Final = {
    "odradek.scram.first.users": ";".join(
        f"{mechanism}=[name={user},password=secret]"
        for mechanism in (WEAK, STRONG)
        for user in ("alice", "bob")
    )
}
REFUSED = ErrorCode.SASL_AUTHENTICATION_FAILED


def client(user: str = "alice", password: str = "secret", mechanism: str = STRONG) -> ScramClient:
    return ScramClient(mechanism, user, password, "nonce")


async def handshake(wire: Wire, mechanism: str = STRONG, version: int = 1) -> ErrorCode:
    answer_of_broker = await wire.ask(SaslHandshakeRequest(mechanism=mechanism), version)
    return ErrorCode.of(answer_of_broker.error_code)


def token(content: bytes) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=content)


async def connected(wire: Wire) -> None:
    """Nothing was sent."""


async def greeted(wire: Wire) -> None:
    assert (await wire.ask(VERSIONS, 3)).error_code == 0


async def chosen(wire: Wire) -> None:
    await greeted(wire)
    assert await handshake(wire) is ErrorCode.NONE


async def halfway(wire: Wire) -> None:
    """The server's challenge is there, and the proof is not."""
    await chosen(wire)
    reply = await wire.ask(token(client().step(b"") or b""), 2)
    assert reply.error_code == 0


async def logged_in(wire: Wire) -> None:
    await greeted(wire)
    assert (await log_in(wire, client(), STRONG)).error_code == 0


async def renewing(wire: Wire) -> None:
    await logged_in(wire)
    assert await handshake(wire) is ErrorCode.NONE


State = Callable[[Wire], Any]
HANDSHAKE, AUTHENTICATE = SaslHandshakeRequest(mechanism=STRONG), token(b"n,,n=alice,r=x")
ENDS: Final = [
    (connected, AUTHENTICATE, 2),
    (greeted, VERSIONS, 3),
    (greeted, AUTHENTICATE, 2),
    (greeted, METADATA, 9),
    (chosen, VERSIONS, 3),
    (chosen, HANDSHAKE, 1),
    (chosen, SaslHandshakeRequest(mechanism=WEAK), 1),
    (chosen, METADATA, 9),
    (halfway, VERSIONS, 3),
    (halfway, HANDSHAKE, 1),
    (halfway, SaslHandshakeRequest(mechanism=WEAK), 1),
    (halfway, METADATA, 9),
    (renewing, VERSIONS, 3),
    (renewing, HANDSHAKE, 1),
    (renewing, METADATA, 9),
]
"""In which state which request ends the connection, without an answer."""


@pytest.mark.check(9, 10)
async def test_a_request_that_may_not_come_now_ends_the_connection_unanswered(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    for reach, request, version in ENDS:
        wire = await scene.wire()
        await reach(wire)
        wire.ask_later(request, version)
        assert await wire.closed_by_broker(), f"{reach.__name__}: {request}"


@pytest.mark.check(10)
async def test_a_client_gets_the_versions_before_a_login_and_after_it(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    for reach in (connected, logged_in):
        wire = await scene.wire()
        await reach(wire)
        assert (await wire.ask(VERSIONS, 3)).error_code == 0


@pytest.mark.check(9)
async def test_a_second_login_needs_a_handshake_of_its_own(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    wire = await scene.wire()
    await logged_in(wire)
    answer_of_broker = await wire.ask(AUTHENTICATE, 2)
    assert answer_of_broker.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await wire.ask(METADATA, 9)).cluster_id, "the first login still counts"


@pytest.mark.check(9)
async def test_what_is_pipelined_behind_a_failed_login_is_not_served(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    wire = await scene.wire()
    await chosen(wire)
    wire.ask_later(token(b"n,,n=alice"), 2)
    wire.ask_later(METADATA, 9)
    assert (await wire.response()).error_code == REFUSED
    assert await wire.closed_by_broker(), "without another answer"


@pytest.mark.check(34)
@pytest.mark.parametrize(
    ("mechanism", "exchange"),
    [
        (STRONG, client("bob")),
        (WEAK, client(mechanism=WEAK)),
        (STRONG, client(password="wrong")),
    ],
    ids=["another user", "another mechanism", "another password"],
)
async def test_who_logs_in_again_stays_who_it_was(
    scene: SecureScene, mechanism: str, exchange: ScramClient
) -> None:
    await scene.secure("SASL_PLAINTEXT", BOB)
    wire = await scene.wire()
    await logged_in(wire)
    assert (await log_in(wire, exchange, mechanism)).error_code == REFUSED
    assert await wire.closed_by_broker()


@pytest.mark.check(34)
async def test_a_renewal_by_bare_tokens_is_refused(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    wire = await scene.wire()
    await logged_in(wire)
    assert await handshake(wire, version=0) is ErrorCode.ILLEGAL_SASL_STATE
    assert await wire.closed_by_broker()


@pytest.mark.check(21)
async def test_what_a_client_sent_does_not_log_anyone_in_again(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    exchange, sent, challenge = client(), [], b""
    wire = await scene.wire()
    await chosen(wire)
    while (response := exchange.step(challenge)) is not None:
        sent.append(response)
        challenge = (await wire.ask(token(response), 2)).auth_bytes
    assert exchange.is_done
    for replayed in (sent, sent[1:]):
        wire = await scene.wire()
        await chosen(wire)
        codes = [(await wire.ask(token(response), 2)).error_code for response in replayed]
        assert codes[-1] == REFUSED
        assert await wire.closed_by_broker()


@pytest.mark.check(12)
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "scram-sha-512", "ANONYMOUS", ""])
async def test_no_one_talks_the_broker_into_a_mechanism_that_is_not_enabled(
    scene: SecureScene, mechanism: str
) -> None:
    await scene.secure("SASL_PLAINTEXT")
    wire = await scene.wire()
    assert await handshake(wire, mechanism) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert await wire.closed_by_broker()
    wire = await scene.wire()
    await chosen(wire)
    plain = PlainClient("alice", "secret").step(b"") or b""
    assert (await wire.ask(token(plain), 2)).error_code == REFUSED, "in SCRAM's place"


@pytest.mark.check(12)
async def test_credentials_of_one_mechanism_are_none_of_another(scene: SecureScene) -> None:
    users = {"odradek.scram.first.users": f"{STRONG}=[name=alice,password=secret]"}
    await scene.secure("SASL_PLAINTEXT", users)
    wire = await scene.wire()
    assert (await log_in(wire, client(mechanism=WEAK), WEAK)).error_code == REFUSED
    wire = await scene.wire()
    assert (await log_in(wire, client(), STRONG)).error_code == 0


@pytest.mark.check(11)
@pytest.mark.parametrize("size", [0, 1, 7, -1, -(2**31), 2**31 - 1, 600_000])
async def test_frames_that_are_no_request_end_the_connection_before_a_login(
    scene: SecureScene, size: int
) -> None:
    await scene.secure("SASL_PLAINTEXT")
    for reach in (connected, greeted, chosen, halfway):
        wire = await scene.wire()
        await reach(wire)
        wire.send(struct.pack(">i", size) + bytes(max(min(size, 64), 0)))
        assert await wire.closed_by_broker(), reach.__name__


@pytest.mark.check(16)
async def test_bare_tokens_are_nothing_but_tokens(scene: SecureScene) -> None:
    await scene.secure("SASL_PLAINTEXT")
    for content in (b"", b"\0" * 16, b"\0\x12\0\3" + bytes(12)):
        wire = await scene.wire()
        assert await handshake(wire, version=0) is ErrorCode.NONE
        wire.send(framed(content))
        assert await wire.closed_by_broker()
