"""A login that fails costs the broker the same work whatever the reason is: counted in hashes, not in time."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from odradek.security.sasl.credentials import new_credential
from odradek.security.sasl.exchange import LoginRefused, ServerExchange
from odradek.security.sasl.plain import PlainClient, PlainServer
from odradek.security.sasl.scram import HASHES, ScramClient, ScramLookup, ScramServer
from odradek.security.sasl.users import NO_USERS, CredentialShapes, ScramUsers

BLOCK_BYTES = 64
PASSWORD = "correct horse battery staple"


@dataclass
class Work:
    """Calls of hash functions, by algorithm and length, and iterations of PBKDF2."""

    hashes: Counter[tuple[str, int]] = field(default_factory=Counter)
    comparisons: Counter[int] = field(default_factory=Counter)
    iterations: int = 0


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Work]:
    """What a piece of work costs."""

    def counted(step: Callable[[], Any]) -> Work:
        work = Work()
        digest, new, sha256 = hmac.digest, hashlib.new, hashlib.sha256
        compare, stretch = hmac.compare_digest, hashlib.pbkdf2_hmac

        def note(name: str, message: bytes) -> None:
            work.hashes[name, len(message) // BLOCK_BYTES] += 1

        def noted_digest(key: bytes, message: bytes, name: str) -> bytes:
            note(f"hmac {name}", message)
            return digest(key, message, name)

        def noted_new(name: str, message: bytes) -> Any:
            note(name, message)
            return new(name, message)

        def noted_sha256(message: bytes) -> Any:
            note("sha256", message)
            return sha256(message)

        def noted_compare(left: bytes, right: bytes) -> bool:
            work.comparisons[len(left)] += 1
            return compare(left, right)

        def noted_stretch(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
            work.iterations += iterations
            return stretch(name, password, salt, iterations)

        with monkeypatch.context() as patched:
            patched.setattr(hmac, "digest", noted_digest)
            patched.setattr(hashlib, "new", noted_new)
            patched.setattr(hashlib, "sha256", noted_sha256)
            patched.setattr(hmac, "compare_digest", noted_compare)
            patched.setattr(hashlib, "pbkdf2_hmac", noted_stretch)
            step()
        return work

    return counted


def refused(server: ServerExchange, responses: list[bytes]) -> Callable[[], None]:
    def step() -> None:
        for response in responses[:-1]:
            server.step(response)
        with pytest.raises(LoginRefused):
            server.step(responses[-1])

    return step


@pytest.mark.check(13)
def test_plain_does_the_same_work_for_every_wrong_login(count: Any) -> None:
    server = PlainServer({"alice": PASSWORD, "bob": "x"})
    logins = [("alice", "wrong"), ("bob", "wrong"), ("nemo", "wrong"), ("alice", PASSWORD[:-1] + "x")]
    works = [count(refused(server, [PlainClient(*login).step(b"") or b""])) for login in logins]
    assert works[0].hashes == {("sha256", 0): 2}
    assert works[0].comparisons == {32: 1}
    assert all(work == works[0] for work in works)


@pytest.mark.check(13, 24)
@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_does_the_same_work_for_every_wrong_login(count: Any, mechanism: str) -> None:
    credential = new_credential(mechanism, PASSWORD, b"salt" * 4)
    lookup = ScramLookup(
        credential=lambda user: credential if user == "alice" else None,
        token=lambda token_id: None,
        secret=b"of the cluster",
        shapes=CredentialShapes([credential]),
    )
    works = []
    for user, password in (("alice", "wrong"), ("alice", PASSWORD[:-1] + "x"), ("nemos", "wrong")):
        client = ScramClient(mechanism, user, password, "nonce")
        first = client.step(b"") or b""
        challenge = ScramServer(mechanism, lookup, "server").step(first).challenge
        responses = [first, client.step(challenge) or b""]
        works.append(count(refused(ScramServer(mechanism, lookup, "server"), responses)))
    assert works[0].iterations == 0, "a broker never salts a password: that is the client's work"
    assert works[0].comparisons, "in a time that does not depend on the content"
    assert all(work == works[0] for work in works)


@pytest.mark.check(24)
def test_what_a_login_shows_at_first_is_the_same_for_users_that_do_not_exist() -> None:
    mechanism = "SCRAM-SHA-256"
    salts = [b"s" * 16] * 3 + [b"s" * 64]
    users = ScramUsers(
        users=NO_USERS.with_changes(
            {
                f"user-{number}": {mechanism: new_credential(mechanism, PASSWORD, salt, 4096 + number % 2)}
                for number, salt in enumerate(salts)
            }
        )
    )
    lookup = ScramLookup(
        credential=lambda user: users.credential(user, mechanism),
        token=lambda token_id: None,
        secret=b"of the cluster",
        shapes=users.shapes(mechanism),
    )

    def shape(user: str) -> tuple[int, bytes]:
        first = ScramServer(mechanism, lookup, "server").step(f"n,,n={user},r=x".encode()).challenge
        _, salt, iterations = first.split(b",")
        return len(salt), iterations

    known = {shape(user) for user in users.users}
    unknown = Counter(shape(f"nemo-{number}") for number in range(2000))
    assert unknown.keys() == known
    assert unknown.most_common(1)[0][0] == (26, b"i=4096"), "half of the users"
    assert 800 < unknown[26, b"i=4096"] < 1200
    assert shape("nemo-1") == shape("nemo-1")
