"""What is fuzzed: whatever an unknown peer can make the broker read before, in place of, or right after a login.

A target takes bytes and returns; it raises only where the code under it is wrong. What such code may answer is its own refusal
(`LoginRefused`, `ConfigError`, `KafkaError`, `IllegalSaslState`): those are caught here, nothing else is. A target also asserts
what must hold whatever the bytes are, above all that no one is logged in who does not know a password.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final

from tests.security.fuzz import connections

from odradek.config.jaas import parse_jaas, parse_pairs
from odradek.model.errors import ConfigError, KafkaError
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acl_index import AclIndex, AclVerdict
from odradek.security.acls import Acl, new_acl, new_filter
from odradek.security.sasl.credentials import new_credential
from odradek.security.sasl.exchange import ExchangeStep, LoginRefused, ServerExchange
from odradek.security.sasl.oauthbearer import BearerServer
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import ScramClient, ScramLookup, ScramServer, TokenCredential
from odradek.security.sasl.session import IllegalSaslState, LoginSession, LoginState
from odradek.security.sasl.tokens import TokenTerms, TokenValidator, parse_jwks
from odradek.security.tls.principal_mapping import parse_rules
from odradek.security.tls.stores import authorities_from_pem, key_from_pem

Target = Callable[[bytes], None]
PASSWORD: Final = connections.PASSWORD
_MECHANISM: Final = "SCRAM-SHA-256"
_CREDENTIAL: Final = new_credential(_MECHANISM, PASSWORD, b"salt" * 4)
_TOKEN: Final = TokenCredential(credential=_CREDENTIAL, owner="alice", expires_ms=10_000)
_NOW_MS: Final = 1_800_000_000_000
_MODULUS: Final = "v" * 341 + "w"
"""2048 bits, odd."""
_JWKS: Final = json.dumps({"keys": [{"kty": "RSA", "kid": "r", "n": _MODULUS, "e": "AQAB"}]})
_HOSTS: Final = ("127.0.0.1", "::1", "10.0.0.7")


def scram(data: bytes) -> None:
    """Lines are the client's messages; no client that only sends bytes gets in."""
    exchange = _scram_server()
    for message in data.split(b"\n")[:3]:
        step = _step(exchange, message)
        if step is None:
            return
        assert step.end is None, "logged in without the password"


def scram_client(data: bytes) -> None:
    """Lines are the server's messages: a client believes no server that does not know the password."""
    client = ScramClient(_MECHANISM, "alice", PASSWORD, "nonce")
    client.step(b"")
    for challenge in data.split(b"\n")[:2]:
        if b"i=" in challenge and b",i=4096" not in challenge:
            return  # its work grows with the iterations: that is the server's right
        try:
            client.step(challenge)
        except LoginRefused:
            return
        assert not client.is_done


def plain(data: bytes) -> None:
    step = _step(PlainServer({"alice": PASSWORD}), data)
    if step is not None and step.end is not None:
        assert data.rpartition(b"\0")[2] == PASSWORD.encode()


def bearer(data: bytes) -> None:
    """The key's private half is known to no one."""
    keys = parse_jwks(_JWKS, "fuzzing")
    validator = TokenValidator(TokenTerms(), lambda: keys, lambda: _NOW_MS)
    exchange = BearerServer(validator.validate)
    for message in (data, b"\x01"):
        step = _step(exchange, message)
        if step is None:
            return
        assert step.end is None, "logged in by a token that no one signed"


def jwks(data: bytes) -> None:
    try:
        keys = parse_jwks(data, "fuzzing")
    except ConfigError:
        return
    assert keys


def login_session(data: bytes) -> None:
    """Each byte is a request that comes next: the session opens by a login alone."""
    session = LoginSession(
        {_MECHANISM: _scram_server, "PLAIN": lambda: PlainServer({"a": "b"})}, {"PLAIN": 1000}
    )
    is_open = False
    now_s = 0.0
    for number in data[:64]:
        now_s += (number >> 4) / 8
        try:
            session.check((18, 17, 36, 3)[number & 3], now_s)
            if session.state is LoginState.OPEN and number & 3 != 1:
                continue  # the dispatcher's
            if number & 3 == 0:
                session.greeted()
            elif number & 3 == 1:
                mechanism = ("PLAIN", _MECHANISM, "GSSAPI", "")[number >> 2 & 3]
                if session.state is not LoginState.OPEN or session.may_renew(now_s):
                    session.choose(mechanism, number >> 7, now_s)
            elif number & 3 == 2:
                response = (b"\0a\0b", b"\0a\0c", b"n,,n=alice,r=x", b"")[number >> 2 & 3]
                step, _ = session.step(response, now_s, _NOW_MS)
                is_open = is_open or (step.end is not None and response == b"\0a\0b")
        except (IllegalSaslState, LoginRefused):
            break
        assert is_open or session.state not in (LoginState.OPEN, LoginState.RENEWING)
        assert session.state is not LoginState.OPEN or session.user is not None


def frames_before_login(data: bytes) -> None:
    connections.frames_before_login(data, _scram_server())


def frames_after_login(data: bytes) -> None:
    connections.frames_after_login(data, _scram_server())


def acls(data: bytes) -> None:
    """Each line is an ACL. The index decides as a look at all of them does."""
    made = frozenset(_acls(data))
    index = AclIndex(made)
    names = {acl.pattern.name for acl in made} | {"orders"}
    for name in sorted(names)[:4]:
        for host in _HOSTS:
            verdict = index.verdict("User:a", host, AclOperation.READ, AclResourceType.TOPIC, name)
            assert (verdict is AclVerdict.DENIED) == _denies(made, host, name)
    for acl in made:
        index.remove(acl)
    assert not list(index)


def _acls(data: bytes) -> Iterator[Acl]:
    for line in data.split(b"\n")[:16]:
        numbers, text = line[:4].ljust(4, b"\0"), line[4:].decode("utf-8", "replace").split("|")
        name, principal, host = [*text, "", "", ""][:3]
        fields = {"operation": numbers[2], "permission": numbers[3]}
        try:
            new_filter(
                resource_type=numbers[0],
                name=name or None,
                pattern_type=numbers[1],
                principal=None,
                host=host,
                **fields,
            )
        except KafkaError:
            pass
        try:
            yield new_acl(
                resource_type=numbers[0],
                resource_name=name,
                pattern_type=numbers[1],
                principal=principal,
                host=host,
                **fields,
            )
        except KafkaError:
            continue


def _denies(made: frozenset[Acl], host: str, name: str) -> bool:
    return any(
        acl.permission is AclPermission.DENY
        and acl.pattern.resource_type is AclResourceType.TOPIC
        and acl.operation in (AclOperation.READ, AclOperation.ALL)
        and acl.principal in ("User:a", "User:*")
        and acl.host in (host, "*")
        and (
            name.startswith(acl.pattern.name)
            if acl.pattern.pattern_type is PatternType.PREFIXED
            else acl.pattern.name in (name, "*")
        )
        for acl in made
    )


def jaas(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for parse in (parse_jaas, lambda text: parse_pairs(text, "key")):
        try:
            parse(text)
        except ConfigError:
            continue


def mapping_rules(data: bytes) -> None:
    rules, _, name = data.decode("utf-8", "replace").partition("\n")
    if any(sign in rules for sign in "*+{"):
        rules = ""  # patterns come from the operator, and may take as long as they like
    try:
        for rule in parse_rules(rules):
            rule.apply(name)
    except ConfigError:
        pass


def certificates(data: bytes) -> None:
    for read in (
        lambda: key_from_pem("key", data, None),
        lambda: key_from_pem("key", data, "password", chain=data[::-1]),
        lambda: authorities_from_pem("fuzzing", data),
    ):
        try:
            read()
        except ConfigError:
            continue


def _scram_server() -> ScramServer:
    lookup = ScramLookup(
        credential=lambda user: _CREDENTIAL if user == "alice" else None,
        token=lambda token_id: _TOKEN if token_id == "token" else None,
        secret=b"of the cluster",
    )
    return ScramServer(_MECHANISM, lookup, "server")


def _step(exchange: ServerExchange, message: bytes) -> ExchangeStep | None:
    try:
        return exchange.step(message)
    except LoginRefused:
        return None


TARGETS: Final[dict[str, Target]] = {
    "scram": scram,
    "scram_client": scram_client,
    "plain": plain,
    "bearer": bearer,
    "jwks": jwks,
    "login_session": login_session,
    "frames_before_login": frames_before_login,
    "frames_after_login": frames_after_login,
    "acls": acls,
    "jaas": jaas,
    "mapping_rules": mapping_rules,
    "certificates": certificates,
}
