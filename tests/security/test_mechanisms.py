"""The mechanisms and the state machine of logins, without I/O."""

import base64
import hashlib
import json
import os
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.config.jaas import parse_jaas
from odradek.config.loading import load_broker_config
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.security.sasl.credentials import check_new, first_users, mechanism_name, new_credential
from odradek.security.sasl.exchange import ClientExchange, LoginRefused, LoginSuccess, ServerExchange
from odradek.security.sasl.oauthbearer import BearerClient, BearerServer
from odradek.security.sasl.plain import PlainClient, PlainServer
from odradek.security.sasl.scram import ScramClient, ScramLookup, ScramServer, credential_of
from odradek.security.sasl.session import IllegalSaslState, LoginSession, LoginState
from odradek.security.sasl.tokens import TokenTerms, TokenValidator, parse_jwks
from odradek.security.sasl.users import ScramUsers, as_json, from_json

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
CREDENTIALS = {name: new_credential(name, "pencil", b"salt" * 4) for name in (SHA_256, SHA_512)}
NOW_S = 1_800_000_000
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def scram_server(mechanism: str = SHA_256, nonce: str = "server") -> ScramServer:
    lookup = ScramLookup(
        credential=lambda user: CREDENTIALS[mechanism] if user in ("user", "a,b=c") else None,
        token=lambda token_id: None,
        secret=b"secret of the cluster",
    )
    return ScramServer(mechanism, lookup, nonce)


def run(client: ClientExchange, server: ServerExchange) -> LoginSuccess | None:
    """A whole login."""
    challenge, end = b"", None
    while (response := client.step(challenge)) is not None:
        step = server.step(response)
        challenge, end = step.challenge, step.end
    return end


# -- PLAIN


@pytest.mark.check(17)
@pytest.mark.parametrize(
    "response",
    [b"user", b"\0user\0", b"\0\0pw", b"\0user\0pw\0x", b"eve\0user\0pw", b"\0user\0no", b"\0\xff\0pw"],
)
def test_plain_refuses_what_is_not_one_user_with_the_right_password(response: bytes) -> None:
    with pytest.raises(LoginRefused) as caught:
        PlainServer({"user": "pw"}).step(response)
    assert "pw" not in str(caught.value)


@pytest.mark.check(17)
@pytest.mark.parametrize("response", [b"\0user\0pw", b"user\0user\0pw"])
def test_plain_accepts_a_user_who_acts_as_itself(response: bytes) -> None:
    assert PlainServer({"user": "pw"}).step(response).end == LoginSuccess(user="user")
    assert run(PlainClient("user", "pw"), PlainServer({"user": "pw"})) == LoginSuccess(user="user")


@pytest.mark.check(18)
def test_plain_without_tls_is_refused_unless_asked_for() -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": 'x.PlainLoginModule required user_ann="hunter2";',
    }
    with pytest.raises(ConfigError, match="PLAIN sends passwords as they are") as caught:
        load_broker_config(settings)
    assert "hunter2" not in str(caught.value)
    config, _ = load_broker_config({**settings, "odradek.sasl.plain.without.tls.enable": "true"})
    assert config.security["SASL_PLAINTEXT"].mechanisms["PLAIN"].jaas.users == {"ann": "hunter2"}  # type: ignore[union-attr]
    assert "hunter2" not in repr(config)


# -- SCRAM


@pytest.mark.check(19, 21)
@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_login_by_scram_proves_both_sides(mechanism: str) -> None:
    client = ScramClient(mechanism, "user", "pencil", "client")
    assert run(client, scram_server(mechanism)) == LoginSuccess(user="user")
    assert client.is_done


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.step(b"") == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.step(first) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert client.is_done


@pytest.mark.check(21)
@pytest.mark.parametrize("nonce", ["client", "clientserverx", "xclientserver", "server"])
def test_a_last_message_with_another_nonce_is_refused(nonce: str) -> None:
    client, server = ScramClient(SHA_256, "user", "pencil", "client"), scram_server()
    last = client.step(server.step(client.step(b"") or b"").challenge) or b""
    with pytest.raises(LoginRefused, match="nonce"):
        server.step(last.replace(b"r=clientserver", b"r=" + nonce.encode()))


@pytest.mark.check(22)
@pytest.mark.parametrize(
    "first", [b"p=tls-unique,,n=user,r=x", b"n,,m=y,n=user,r=x", b"n,,r=x,n=user", b"n,,n=,r=x"]
)
def test_scram_refuses_what_it_does_not_know(first: bytes) -> None:
    with pytest.raises(LoginRefused):
        scram_server().step(first)


@pytest.mark.check(22)
@pytest.mark.parametrize("flag", [b"n", b"y"])
def test_scram_takes_clients_without_channel_binding(flag: bytes) -> None:
    assert scram_server().step(flag + b",,n=user,r=x").challenge.startswith(b"r=xserver,s=")


@pytest.mark.check(22)
def test_the_header_of_the_last_message_is_that_of_the_first() -> None:
    client, server = ScramClient(SHA_256, "user", "pencil", "client"), scram_server()
    last = client.step(server.step((client.step(b"") or b"").replace(b"n,,", b"y,,")).challenge) or b""
    with pytest.raises(LoginRefused, match="another header"):
        server.step(last)


@pytest.mark.check(23)
@settings(max_examples=30)
@given(name=_NAMES, password=_NAMES)
@example(name="a,b=c", password="pencil")
@example(name="=2C=3D,", password="=3D2C")
@example(name="m\u00b2", password="cafe\u0301")
@example(name="I\u00adX", password="p\u00a0q")
@example(name="\u0627\u0031", password="\u0007")
def test_names_are_escaped_and_both_names_and_passwords_count_byte_by_byte(name: str, password: str) -> None:
    credential = new_credential(SHA_256, password, b"salt", 4096)
    assert credential == credential_of(
        SHA_256, hashlib.pbkdf2_hmac("sha256", password.encode(), b"salt", 4096), b"salt", 4096
    )
    lookup = ScramLookup(credential={name: credential}.get, token=lambda _: None, secret=b"secret")

    def log_in(text: str) -> LoginSuccess | None:
        return run(ScramClient(SHA_256, name, text, "n"), ScramServer(SHA_256, lookup, "server"))

    assert log_in(password) == LoginSuccess(user=name)
    other = unicodedata.normalize("NFKC", password)
    if other != password:
        with pytest.raises(LoginRefused, match="wrong password"):
            log_in(other)


@pytest.mark.check(24, 13)
def test_a_user_that_does_not_exist_has_a_salt_and_ends_as_a_wrong_password_does() -> None:
    salts = set()
    for nonce in ("a", "b"):
        client, server = ScramClient(SHA_256, "nemo", "pencil", nonce), scram_server(nonce=nonce)
        challenge = server.step(client.step(b"") or b"").challenge
        salts.add(challenge.split(b",")[1])
        with pytest.raises(LoginRefused) as unknown:
            server.step(client.step(challenge) or b"")
    assert len(salts) == 1
    with pytest.raises(LoginRefused) as wrong:
        run(ScramClient(SHA_256, "user", "wrong", "n"), scram_server())
    assert str(unknown.value).replace("nemo", "user") == str(wrong.value)


@pytest.mark.check(25)
def test_scram_lets_no_user_act_as_another() -> None:
    with pytest.raises(LoginRefused, match="act as 'admin'"):
        scram_server().step(b"n,a=admin,n=user,r=x")


@pytest.mark.check(19)
@pytest.mark.parametrize("wrong", ["signature", "iterations", "nonce"])
def test_a_client_does_not_trust_a_broker_that_does_not_know_it(wrong: str) -> None:
    client = ScramClient(SHA_256, "user", "pencil", "client")
    challenge = scram_server().step(client.step(b"") or b"").challenge
    if wrong == "iterations":
        challenge = challenge.replace(b"i=4096", b"i=1")
    elif wrong == "nonce":
        challenge = challenge.replace(b"r=client", b"r=other")
    messages = iter((challenge, b"v=" + base64.b64encode(bytes(32))))
    with pytest.raises(LoginRefused):
        all(client.step(message) for message in messages)


@pytest.mark.check(19, 25)
@pytest.mark.parametrize("iterations", [4095, 16385, -1])
def test_credentials_are_within_bounds(iterations: int) -> None:
    with pytest.raises(KafkaError) as caught:
        check_new("user", iterations, b"salt", b"password")
    assert caught.value.code is ErrorCode.UNACCEPTABLE_CREDENTIAL
    with pytest.raises(KafkaError):
        mechanism_name(3)


@pytest.mark.check(20)
def test_what_is_stored_is_no_password_and_salts_are_random() -> None:
    text = f'{SHA_256}=[name=ann,password="a,b;c"];{SHA_512}=[name=bob,password=a,iterations=8192]'
    first, second = first_users(text, os.urandom), first_users(text, os.urandom)
    assert first.users["ann"][SHA_256].salt != second.users["ann"][SHA_256].salt
    assert first.shapes(SHA_512).draw(0.5) == (8192, 16)
    stored = json.dumps(as_json(first.users))
    assert from_json(json.loads(stored)) == first.users
    assert "a,b;c" not in stored
    assert first.seed not in repr(first)
    for wrong in (f"{SHA_256}=[name=ann]", "PLAIN=[name=a,password=b]", f"{SHA_256}=name"):
        with pytest.raises(ConfigError, match="hidden"):
            first_users(wrong, os.urandom)
    assert ScramUsers().shapes(SHA_256).draw(0.5) == (4096, 16)


# -- the state machine


def session(**lifetimes_ms: int) -> LoginSession:
    users = {"ann": "pw", "bob": "pw"}
    return LoginSession(
        {"PLAIN": lambda: PlainServer(users), "OTHER": lambda: PlainServer(users)}, lifetimes_ms
    )


def opened(**lifetimes_ms: int) -> LoginSession:
    made = session(**lifetimes_ms)
    made.choose("PLAIN", 1, 0.0)
    made.step(b"\0ann\0pw", 0.0, 0)
    return made


@pytest.mark.check(9, 10)
def test_before_a_login_only_what_leads_to_one_is_allowed() -> None:
    made = session()
    for api_key in (0, 1, 3, 36, 10000):
        with pytest.raises(IllegalSaslState):
            made.check(api_key, 0.0)
    made.check(18, 0.0)
    made.greeted()
    for api_key in (18, 36, 3):
        with pytest.raises(IllegalSaslState):
            made.check(api_key, 0.0)
    made.choose("PLAIN", 1, 0.0)
    for api_key in (17, 18, 3):
        with pytest.raises(IllegalSaslState):
            made.check(api_key, 0.0)
    made.step(b"\0ann\0pw", 0.0, 0)
    for api_key in (0, 3, 17, 18):
        made.check(api_key, 0.0)


@pytest.mark.check(12)
def test_an_unknown_mechanism_is_answered_with_those_that_are_known() -> None:
    made = session()
    outcome = made.choose("GSSAPI", 1, 0.0)
    assert (outcome.error, outcome.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("PLAIN", "OTHER"))
    assert made.state is LoginState.ENDED


@pytest.mark.check(32, 33)
def test_a_session_that_has_expired_takes_a_login_and_nothing_else() -> None:
    made = opened(PLAIN=1000)
    made.check(3, 0.9)
    with pytest.raises(IllegalSaslState):
        made.check(3, 1.0)
    made.check(17, 1.0)
    made.choose("PLAIN", 1, 1.0)
    assert made.step(b"\0ann\0pw", 1.0, 0)[1] == 1000
    made.check(3, 1.9)


@pytest.mark.check(34)
def test_a_renewal_keeps_user_and_mechanism_and_comes_once_a_second() -> None:
    made = opened()
    made.choose("PLAIN", 1, 5.0)
    with pytest.raises(LoginRefused, match=r"logged in as 'ann'.*again as 'bob'"):
        made.step(b"\0bob\0pw", 5.0, 0)
    assert made.state is LoginState.ENDED
    made = opened()
    made.choose("OTHER", 1, 5.0)
    with pytest.raises(LoginRefused, match="again by 'OTHER'"):
        made.step(b"\0ann\0pw", 5.0, 0)
    made = opened()
    made.choose("PLAIN", 1, 5.0)
    made.step(b"\0ann\0pw", 5.0, 0)
    assert not made.may_renew(5.9)
    assert made.may_renew(6.0)


@pytest.mark.check(32)
def test_a_token_shortens_the_session() -> None:
    def exchange() -> ServerExchange:
        return BearerServer(lambda token: LoginSuccess(user="ann", expires_ms=5_000))

    made = LoginSession({"OAUTHBEARER": exchange}, {"OAUTHBEARER": 60_000})
    made.choose("OAUTHBEARER", 1, 0.0)
    assert made.step(BearerClient(lambda: "x").step(b"") or b"", 0.0, 2_000)[1] == 3_000


# -- OAUTHBEARER


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
_rsa, _ec = RSA_KEY.public_key().public_numbers(), EC_KEY.public_key().public_numbers()
JWKS = {
    "keys": [
        {"kty": "RSA", "kid": "r", "n": number(_rsa.n), "e": number(_rsa.e)},
        {"kty": "EC", "kid": "e", "crv": "P-256", "x": number(_ec.x), "y": number(_ec.y), "alg": "ES256"},
        {"kty": "oct", "kid": "o", "k": "c2VjcmV0"},
    ]
}
CLAIMS = {"sub": "ann", "exp": NOW_S + 60, "iat": NOW_S, "aud": ["kafka", "x"], "iss": "https://issuer"}


def token(header: dict[str, Any] | None = None, **claims: Any) -> str:
    header = {"alg": "RS256", "kid": "r", **(header or {})}
    body = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    signed = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(body).encode())}"
    if header["alg"] == "ES256":
        r, s = utils.decode_dss_signature(EC_KEY.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    elif header["alg"] == "none":
        signature = b""
    else:
        signature = RSA_KEY.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{encoded(signature)}"


def validate(text: str, unknown: Callable[[str], None] = lambda key_id: None, **terms: Any) -> LoginSuccess:
    keys = parse_jwks(json.dumps(JWKS), "a test")
    return TokenValidator(TokenTerms(**terms), lambda: keys, lambda: NOW_S * 1000, unknown).validate(text)


@pytest.mark.check(26)
@pytest.mark.parametrize("header", [{}, {"alg": "ES256", "kid": "e"}])
def test_a_signed_token_names_its_user(header: dict[str, Any]) -> None:
    assert validate(token(header)).user == "ann"


@pytest.mark.check(26)
@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": "ES256", "kid": "r"},
        {"alg": "RS256", "kid": "e"},
        {"alg": "PS256"},
        {"kid": "o"},
        {"kid": "unknown"},
        {"crit": ["x"]},
    ],
)
def test_a_token_whose_algorithm_or_key_does_not_fit_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(LoginRefused):
        validate(token(header))


@pytest.mark.check(26)
def test_an_unknown_key_id_is_reported() -> None:
    seen: list[str] = []
    with pytest.raises(LoginRefused):
        validate(token({"kid": "new"}), seen.append)
    assert seen == ["new"]


@pytest.mark.check(26)
@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "e30.e30.", "....", "[" * 5000 + ".e30.x"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(LoginRefused):
        validate(text)
    with pytest.raises(LoginRefused):
        validate(token()[:-4] + "AAAA")


@pytest.mark.check(27)
@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - 30},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": NOW_S + 31},
        {"iat": NOW_S + 31},
        {"exp": True},
    ],
)
def test_a_token_counts_at_its_time(claims: dict[str, Any]) -> None:
    assert validate(token(exp=NOW_S - 29, nbf=NOW_S + 29, iat=NOW_S + 29)).expires_ms == (NOW_S + 1) * 1000
    assert validate(token(exp=NOW_S + 60)).expires_ms == (NOW_S + 60) * 1000
    with pytest.raises(LoginRefused):
        validate(token(**claims))


@pytest.mark.check(28)
def test_issuer_and_audience_count_where_they_are_expected() -> None:
    assert validate(token(), issuer="https://issuer", audiences=("kafka",)).user == "ann"
    assert validate(token(aud="kafka"), audiences=("kafka", "y")).user == "ann"
    for terms in ({"issuer": "https://other"}, {"audiences": ("y",)}):
        with pytest.raises(LoginRefused):
            validate(token(), **terms)
    with pytest.raises(LoginRefused):
        validate(token(aud=None), audiences=("kafka",))


@pytest.mark.check(29)
def test_claims_may_have_other_names_and_no_user_is_empty() -> None:
    assert validate(token(mail="a@b"), subject_claim="mail").user == "a@b"
    for wrong in ("", " ", None, 7):
        with pytest.raises(LoginRefused):
            validate(token(sub=wrong))


@pytest.mark.check(26)
def test_tokens_without_a_signature_count_only_where_asked_for() -> None:
    assert validate(token({"alg": "none"}), accepts_unsigned=True).user == "ann"
    with pytest.raises(ConfigError, match="needs its issuer's keys"):
        load_broker_config({"listeners": "SASL_PLAINTEXT://:0", "sasl.enabled.mechanisms": "OAUTHBEARER"})


@pytest.mark.check(31)
def test_a_refused_token_takes_an_extra_step() -> None:
    def never(text: str) -> LoginSuccess:
        raise LoginRefused("no")

    server, client = BearerServer(never), BearerClient(lambda: "x")
    challenge = server.step(client.step(b"") or b"").challenge
    assert json.loads(challenge) == {"status": "invalid_token"}
    kick = client.step(challenge)
    assert kick == b"\x01"
    assert not client.is_done
    with pytest.raises(LoginRefused):
        server.step(kick)


@pytest.mark.parametrize(
    "message", [b"", b"n,,", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer \x01\x01"]
)
def test_what_is_no_bearer_message_is_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        BearerServer(lambda text: LoginSuccess(user="x")).step(message)


# -- JAAS


def test_a_jaas_string_is_understood_and_never_quoted() -> None:
    module = parse_jaas('a.b.C required\n  username="al\\"ice" password=\'s e\' flag=true ;')
    assert (module.name, module.options["username"], module.options["password"]) == ("a.b.C", 'al"ice', "s e")
    for wrong in (
        "",
        "C required",
        'C required password="hunter2"',
        "C required password hunter2;",
        'C x a="hunter2";',
    ):
        with pytest.raises(ConfigError) as caught:
            parse_jaas(wrong)
        assert "hunter2" not in str(caught.value)
