"""Settings of SASL, for all listeners; `listener.name.NAME.sasl...` overrides them for one
(`listener_security.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.config.definition import Bounds, at_least
from odradek.config.section import (
    LOW,
    PER_BROKER,
    Boolean,
    Int,
    List,
    Long,
    Password,
    Section,
    String,
    section,
    setting,
)
from odradek.model.errors import ConfigError

GSSAPI, PLAIN, OAUTHBEARER = "GSSAPI", "PLAIN", "OAUTHBEARER"
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
"""The mechanisms that brokers and clients here support."""
TOKEN_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_NAMES: Final = Bounds(
    allowed="names of mechanisms, such as SCRAM-SHA-512",
    accepts=lambda names: all(name in MECHANISMS for name in names),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClient:
    """A client of a tokens' issuer. `scope`: what it asks for. `is_url_encoded`: its name and secret go to the issuer so."""

    name: str
    secret: str = field(repr=False)
    scope: str
    is_url_encoded: bool = False

    @classmethod
    def of(
        cls,
        jaas: Mapping[str, str],
        *,
        name: str | None,
        secret: str | None,
        scope: str | None,
        is_url_encoded: bool,
    ) -> TokenClient:
        """Returns the client of settings, or else of a login module's options. Raises ConfigError without id or secret."""
        client = cls(
            name=name or jaas.get("clientId", ""),
            secret=secret or jaas.get("clientSecret", ""),
            scope=scope or jaas.get("scope", ""),
            is_url_encoded=is_url_encoded,
        )
        if not client.name or not client.secret:
            raise ConfigError(
                f"{TOKEN_ENDPOINT} needs clientId and clientSecret in sasl.jaas.config, or "
                "sasl.oauthbearer.client.credentials.client.id and .secret"
            )
        return client


@section("sasl.")
class SaslConfig(Section):
    """Mechanisms, and what each of them needs."""

    # fmt: off
    enabled_mechanisms: List = setting(default=(GSSAPI,), valid=_NAMES, dynamic=PER_BROKER, as_started=True, meaning=
        "How clients may log in: any of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI (Kerberos).")
    jaas_config: Password | None = setting(default=None, dynamic=PER_BROKER, as_started=True, meaning=
        "A login module with its options, as Java's JAAS has it: users of PLAIN (user_NAME=\"PASSWORD\"), and the username and "
        "password of this broker itself.")
    mechanism_inter_broker_protocol: String = setting(default=GSSAPI, dynamic=PER_BROKER, as_started=True, meaning=
        "The mechanism by which this broker logs in to others. Not set: the one of sasl.enabled.mechanisms, if it is only one.")
    server_max_receive_size: Int = setting(default=524_288, valid=at_least(1), meaning=
        "The largest request of a client that has not logged in.")
    failed_authentication_delay_ms: Int = setting("connection.failed.authentication.delay.ms", default=100,
        valid=at_least(0), importance=LOW, meaning=
        "How long the answer to a failed login waits, so that guessing takes its time.")
    login_timeout_ms: Int = setting("odradek.sasl.login.timeout.ms", default=20_000, valid=at_least(1), importance=LOW, meaning=
        "Odradek's own: how long a client may take to log in after it connected.")
    max_reauth_ms: Long = setting("connections.max.reauth.ms", default=0, meaning=
        "How long a login counts: a client that has not logged in again by then (KIP-368) is disconnected. 0: only "
        "its token limits it.")
    kerberos_service_name: String | None = setting(default=None, dynamic=PER_BROKER, as_started=True, meaning=
        "The first part of brokers' Kerberos principals: kafka of kafka/host@REALM.")
    kerberos_principal_to_local_rules: List = setting(default=("DEFAULT",), dynamic=PER_BROKER, as_started=True, meaning=
        "From a Kerberos principal to a user's name. DEFAULT: of ann@REALM, ann, for principals of our own realm; "
        "`RULE:[1:$1@$0](.*@OTHER)s/@.*//` for principals of OTHER. The first rule that fits decides.")
    plain_without_tls_enable: Boolean = setting("odradek.sasl.plain.without.tls.enable", default=False, importance=LOW, meaning=
        "Odradek's own: whether a listener without TLS may have PLAIN, whose passwords anyone on the way can read.")
    scram_first_users: Password | None = setting("odradek.scram.first.users", default=None, meaning=
        "Odradek's own: credentials that the first controller of a new cluster makes, as of `kafka-storage --add-scram`: "
        "SCRAM-SHA-512=[name=alice,password=secret], separated by semicolons. Once there are any, it has no effect.")
    oauthbearer_jwks_endpoint_url: String | None = setting(default=None, meaning=
        "Where the keys of the tokens' issuer are: a file:// or https:// URL of a JWKS document.")
    oauthbearer_jwks_endpoint_refresh_ms: Long = setting(default=3_600_000, valid=at_least(1), importance=LOW, meaning=
        "How often they are fetched again.")
    oauthbearer_jwks_endpoint_retry_backoff_ms: Long = setting(default=100, valid=at_least(1), importance=LOW, meaning=
        "The first pause after they could not be fetched; it doubles.")
    oauthbearer_jwks_endpoint_retry_backoff_max_ms: Long = setting(default=10_000, valid=at_least(1), importance=LOW, meaning=
        "The longest such pause.")
    oauthbearer_token_endpoint_url: String | None = setting(default=None, meaning=
        "Where the issuer gives this broker its token, to log in to others by OAUTHBEARER: an https:// URL. The id and the "
        "secret are clientId and clientSecret in sasl.jaas.config, or the next two.")
    oauthbearer_client_credentials_client_id: String | None = setting(default=None, meaning=
        "This broker's id at the issuer.")
    oauthbearer_client_credentials_client_secret: Password | None = setting(default=None, meaning=
        "And its secret.")
    oauthbearer_scope: String | None = setting(default=None, meaning=
        "Which scope to ask the issuer for. Not set: `scope` in sasl.jaas.config, or none.")
    oauthbearer_header_urlencode: Boolean = setting(default=False, importance=LOW, meaning=
        "Whether id and secret go to the issuer URL-encoded, as RFC 6749 says and some issuers ask for (KIP-1025).")
    login_connect_timeout_ms: Int | None = setting(default=None, importance=LOW, meaning=
        "How long to wait for a connection to the issuer. Not set: 4 s.")
    login_read_timeout_ms: Int | None = setting(default=None, importance=LOW, meaning=
        "How long to wait for its answer. Not set: 4 s.")
    login_retry_backoff_ms: Long = setting(default=100, valid=at_least(1), importance=LOW, meaning=
        "The first pause after the issuer gave no token; it doubles.")
    login_retry_backoff_max_ms: Long = setting(default=10_000, valid=at_least(1), importance=LOW, meaning=
        "The longest such pause.")
    oauthbearer_expected_audience: List = setting(default=(), importance=LOW, meaning=
        "Tokens are for one of these audiences. Not set: for any.")
    oauthbearer_expected_issuer: String | None = setting(default=None, importance=LOW, meaning=
        "Tokens are from this issuer. Not set: from any whose key is known.")
    oauthbearer_clock_skew_seconds: Int = setting(default=30, valid=at_least(0), importance=LOW, meaning=
        "How far the clocks of broker and issuer may differ.")
    oauthbearer_scope_claim_name: String = setting(default="scope", importance=LOW, meaning=
        "The claim of a token that holds its scope.")
    oauthbearer_sub_claim_name: String = setting(default="sub", importance=LOW, meaning=
        "The claim of a token that names who it is for.")
    oauthbearer_allowed_urls: List = setting("odradek.sasl.oauthbearer.allowed.urls", default=(), importance=LOW, meaning=
        "Odradek's own: the URLs from which keys and tokens may be fetched. Nothing is fetched from others; files need none.")
    oauthbearer_unsecured_enable: Boolean = setting("odradek.sasl.oauthbearer.unsecured.enable", default=False, importance=LOW,
        meaning=
        "Odradek's own: whether tokens without a signature are accepted. For tests alone: anyone can make them.")
    # fmt: on
