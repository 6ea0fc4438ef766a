"""The seeds of the fuzzing, and a few hundred mutations of each: `python -m tests.security.fuzz` runs millions."""

from random import Random

import pytest
from tests.security.fuzz.mutations import mutated, seeds_of
from tests.security.fuzz.targets import TARGETS

from odradek.broker.security.login import LoginGate
from odradek.net.connection import Connection
from odradek.net.replies import Reply
from odradek.security.sasl.exchange import ExchangeStep, LoginSuccess
from odradek.security.sasl.plain import PlainServer

EXECUTIONS = 300
PLAIN_HANDSHAKE = b"\0\x11\0\1\0\0\0\1\xff\xff\0\5PLAIN"
A_GUESS = b"\0\x24\0\0\0\0\0\2\xff\xff\0\0\0\x0e\0alice\0a guess"
METADATA = b"\0\3\0\0\0\0\0\1\xff\xff\0\0\0\0"


def test_every_target_has_seeds() -> None:
    assert seeds_of().keys() == TARGETS.keys()


@pytest.mark.check(3, 17, 21, 26)
@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_log_in_or_break_what_reads_them(name: str) -> None:
    random, corpus = Random(name), seeds_of()[name]
    for data in (*corpus, b"", b"\0" * 5000, *(mutated(random, corpus) for _ in range(EXECUTIONS))):
        TARGETS[name](data)


def test_a_target_sees_a_login_that_should_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def anyone(server: PlainServer, response: bytes) -> ExchangeStep:
        return ExchangeStep(end=LoginSuccess(user="alice"))

    monkeypatch.setattr(PlainServer, "step", anyone)
    with pytest.raises(AssertionError):
        TARGETS["plain"](b"\0alice\0a guess")
    with pytest.raises(AssertionError, match="without a password"):
        TARGETS["frames_before_login"](b"\r\n".join((PLAIN_HANDSHAKE, A_GUESS)))


def test_a_target_sees_a_request_that_is_served_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve_at_once(gate: LoginGate, connection: Connection, frame: memoryview) -> Reply:
        return gate._serve(connection, frame)

    monkeypatch.setattr(LoginGate, "handle", serve_at_once)
    with pytest.raises(AssertionError, match="API 3 is served in state connected"):
        TARGETS["frames_before_login"](METADATA)
