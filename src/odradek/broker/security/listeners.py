"""The security of this broker's listeners at work: their certificates, who logs in how, and how this broker reaches others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.cluster.link import ClusterLink
from odradek.cluster.documents import SCRAM_USERS
from odradek.cluster.image import ClusterImage
from odradek.config.broker import BrokerConfig
from odradek.config.listener_security import ListenerSecurity
from odradek.config.sasl import OAUTHBEARER
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.net.connection import Connection
from odradek.net.listening import OpenListener
from odradek.net.replies import Reply
from odradek.runtime.ports import Runtime
from odradek.security.principals import USER
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.broker.security import delegation, issuer_keys, mechanisms, own_token
    from odradek.broker.security import login as security_login
    from odradek.broker.security.issuer_keys import KeySource
    from odradek.broker.security.login import LoginAttempt, LoginGate, LoginTerms
    from odradek.broker.security.mechanisms import Mechanisms
    from odradek.broker.security.own_token import OwnToken
    from odradek.net import outgoing_security
    from odradek.net.outgoing_security import LoginCredentials, OutgoingSecurity
    from odradek.security.sasl import credentials, kerberos, oauthbearer, scram, session, tokens
    from odradek.security.sasl.exchange import ServerExchange
    from odradek.security.sasl.scram import TokenCredential
    from odradek.security.tls import listener_tls
    from odradek.security.tls.listener_tls import ListenerCertificates
else:
    listener_tls = lazy("odradek.security.tls.listener_tls")
    security_login = lazy("odradek.broker.security.login")
    mechanisms = lazy("odradek.broker.security.mechanisms")
    outgoing_security = lazy("odradek.net.outgoing_security")
    own_token = lazy("odradek.broker.security.own_token")
    issuer_keys = lazy("odradek.broker.security.issuer_keys")
    oauthbearer = lazy("odradek.security.sasl.oauthbearer")
    kerberos = lazy("odradek.security.sasl.kerberos")
    tokens = lazy("odradek.security.sasl.tokens")
    credentials = lazy("odradek.security.sasl.credentials")
    scram = lazy("odradek.security.sasl.scram")
    delegation = lazy("odradek.broker.security.delegation")
    session = lazy("odradek.security.sasl.session")

_NONCE_BYTES: Final = 24
_log = events.get("security")
CERTIFICATES_LOOK_SECONDS: Final = 5.0
KEYS_LOOK_SECONDS: Final = 1.0
Serve = Callable[[Connection, memoryview], Reply]


def kerberos_logins(security: ListenerSecurity) -> Callable[[], ServerExchange] | None:
    """Returns what makes a login by GSSAPI where it is enabled. Raises ConfigError without the library or a key."""
    identity = security.kerberos
    if identity is None:
        return None
    try:
        acceptor = kerberos.KerberosAcceptor(
            identity,
            security.sasl.kerberos_principal_to_local_rules,
            others_may_read=security.ssl.secrets_others_may_read,
        )
    except ImportError as error:
        raise ConfigError(f"GSSAPI needs pip install 'odradek[kerberos]' and MIT Kerberos: {error}") from None
    return acceptor.exchange


class SecureListeners:
    """The certificates, logins and outgoing security of this broker's listeners.

    Make it before the first listener opens; raises ConfigError when a certificate or a key cannot be used. `image` is called
    at each login."""

    def __init__(self, config: BrokerConfig, runtime: Runtime, image: Callable[[], ClusterImage]) -> None:
        self._config = config
        self._runtime = runtime
        self._image = image
        self.observers: list[Callable[[LoginAttempt], None]] = []
        """Callbacks for every login and every failed attempt."""
        self._certificates: dict[str, ListenerCertificates] = {
            name: listener_tls.ListenerCertificates(name, security)
            for name, security in config.security.items()
            if security.uses_tls
        }
        self._key_sources: dict[str, KeySource] = {
            name: issuer_keys.KeySource(security.sasl, runtime)
            for name, security in config.security.items()
            if OAUTHBEARER in security.mechanisms and security.sasl.oauthbearer_jwks_endpoint_url is not None
        }

        self._own_tokens: dict[str, OwnToken] = {
            name: own_token.OwnToken(name, security, runtime)
            for name, security in config.security.items()
            if security.needs_own_token
        }

    @property
    def certificates(self) -> Mapping[str, ListenerCertificates]:
        """The certificates of the listeners with TLS, by listener name."""
        return self._certificates

    def opened(
        self, name: str, advertised: tuple[str, int] | None, serve: Serve, *, is_for_brokers: bool
    ) -> OpenListener:
        """Returns the listener as its connections see it. `serve` is the dispatcher."""
        config = self._config
        security = config.security.get(name)
        login: Callable[[Connection], LoginGate] | None = None
        if security is not None and security.uses_sasl:
            known = mechanisms.Mechanisms(
                security,
                self._runtime.entropy,
                self._image,
                bearer=self._bearer(name, security),
                kerberos=kerberos_logins(security),
                token=self._token,
            )
            login = partial(self._log_in, serve, known, self._terms(security))
        return OpenListener(
            name=name,
            advertised=advertised,
            broker_id=config.server.node_id,
            is_for_brokers=is_for_brokers,
            tls=self._certificates.get(name),
            login=login,
            first_frames_bytes_max=None if login is None else config.sasl.server_max_receive_size,
        )

    def _bearer(self, name: str, security: ListenerSecurity) -> Callable[[], ServerExchange] | None:
        if OAUTHBEARER not in security.mechanisms:
            return None
        sasl, source = security.sasl, self._key_sources.get(name)
        terms = tokens.TokenTerms(
            issuer=sasl.oauthbearer_expected_issuer,
            audiences=sasl.oauthbearer_expected_audience,
            subject_claim=sasl.oauthbearer_sub_claim_name,
            scope_claim=sasl.oauthbearer_scope_claim_name,
            skew_s=sasl.oauthbearer_clock_skew_seconds,
            accepts_unsigned=sasl.oauthbearer_unsecured_enable,
        )
        wall_ms = self._runtime.clock.wall_ms
        if source is None:
            validator = tokens.TokenValidator(terms, dict, wall_ms)
        else:
            validator = tokens.TokenValidator(terms, lambda: source.keys, wall_ms, source.unknown_key)
        return partial(oauthbearer.BearerServer, validator.validate)

    def _terms(self, security: ListenerSecurity) -> LoginTerms:
        return security_login.LoginTerms(
            failure_delay_s=security.sasl.failed_authentication_delay_ms / 1000,
            login_s=security.sasl.login_timeout_ms / 1000,
            observe=self._observe,
        )

    def _log_in(
        self, serve: Serve, known: Mechanisms, terms: LoginTerms, connection: Connection
    ) -> LoginGate:
        state = session.LoginSession(known.exchanges(), known.lifetimes_ms)
        return security_login.LoginGate(connection, serve, state, terms, self._runtime.clock)

    def _observe(self, attempt: LoginAttempt) -> None:
        for observer in self.observers:
            observer(attempt)

    def to_others(self) -> OutgoingSecurity | None:
        """Returns the security of connections to the listener for brokers of other brokers; None for plain text."""
        return self.to_listener(self._config.network.listener_of_brokers)

    def to_listener(self, name: str) -> OutgoingSecurity | None:
        """Returns the security of connections to other brokers' listener of this name, by its settings; None for plain text."""
        security = self._config.security.get(name)
        if security is None or security.protocol == "PLAINTEXT":
            return None
        certificates = self._certificates.get(name)
        return outgoing_security.OutgoingSecurity(
            context=None if certificates is None else (lambda: certificates.client_context),
            login=self._own_login(name, security) if security.uses_sasl else None,
            handshake_s=security.ssl.handshake_timeout_ms / 1000,
        )

    def _own_login(self, name: str, security: ListenerSecurity) -> LoginCredentials | None:
        own = self._own_tokens.get(name)
        if own is None:
            return outgoing_security.broker_login(security, self._nonce)
        return outgoing_security.LoginCredentials(mechanism=OAUTHBEARER, token=own.token, prepare=own.renew)

    @property
    def possible_control_planes(self) -> Mapping[str, Callable[[], OutgoingSecurity | None]]:
        """The security of connections to each listener that other brokers may have as their control plane."""
        return {
            listener.name: partial(self.to_listener, listener.name)
            for listener in self._config.network.listeners
        }

    async def make_first_users(self, cluster: ClusterLink) -> None:
        """Creates the users in `odradek.scram.first.users`, if this broker is the controller and there are no users yet."""
        text = self._config.sasl.scram_first_users
        if text is None or not cluster.leads or cluster.image.scram_users.users:
            return
        first = credentials.first_users(text, self._random_bytes)
        await cluster.controller.alter(SCRAM_USERS, lambda before: before if before.users else first)
        _log.info("first_users_made", users=sorted(first.users))

    def _nonce(self) -> str:
        return self._random_bytes(_NONCE_BYTES).hex()

    def _random_bytes(self, count: int) -> bytes:
        parts = b"".join(self._runtime.entropy.uuid().bytes for _ in range(count // 16 + 1))
        return parts[:count]

    def reconfigure(self, security: Mapping[str, ListenerSecurity]) -> None:
        """Applies changed dynamic settings."""
        for name, certificates in self._certificates.items():
            if name in security:
                certificates.reconfigure(security[name])

    async def reload_certificates(self) -> None:
        """Take over certificates that were replaced."""
        for certificates in self._certificates.values():
            certificates.reload_if_changed()

    async def refresh_keys(self) -> None:
        """Refreshes the keys of the tokens' issuers."""
        for source in self._key_sources.values():
            await source.refresh()

    def _token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Returns a token's credential; None where brokers have no secret key: then tokens in the registry do not count."""
        token = self._image().delegation_tokens.get(token_id)
        if token is None or not self._config.delegation.secret_key or mechanism not in token.credentials:
            return None
        return scram.TokenCredential(
            credential=token.credentials[mechanism],
            owner=token.owner.removeprefix(USER),
            expires_ms=token.expires_ms,
        )

    async def remove_tokens_that_are_over(self, cluster: ClusterLink) -> None:
        await delegation.sweep_tokens(cluster, self._runtime.clock.wall_ms())
