"""The security of a client's connections, from its settings, and their logins. Imported only where connections are secured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.client.network.errors import BrokerUnreachableError, LoginError, WrongPeerError
from odradek.client.network.throttled import SendGate
from odradek.client.settings.address import Address
from odradek.client.settings.security_settings import SecuritySettings
from odradek.config.files.secret_files import read_secret_file
from odradek.config.sasl import GSSAPI, OAUTHBEARER
from odradek.config.tls import SslConfig
from odradek.model.errors import ConfigError, KafkaError
from odradek.model.lazy import lazy
from odradek.net.outgoing_security import LoginCredentials, LoginFailed, OutgoingSecurity, log_in
from odradek.net.tls import HUNG_UP, TlsFailure
from odradek.protocol import Message
from odradek.security.tls.contexts import client_context, explain_tls, read_material

if TYPE_CHECKING:
    from odradek.client.network import token_endpoint
else:
    token_endpoint = lazy("odradek.client.network.token_endpoint")

_LIFETIME_USED: Final = 0.85
"""The part of a login's lifetime after which it is renewed."""


class ConnectionLogin:
    """The login of one connection, renewed before it ends (KIP-368): requests under way are answered before, others wait."""

    def __init__(
        self,
        address: Address,
        credentials: LoginCredentials,
        gate: SendGate,
        *,
        send: Callable[[Message], asyncio.Future[object]],
        on_failed: Callable[[KafkaError], None],
    ) -> None:
        """`send` passes by the gate. `on_failed` is called when the login cannot be renewed."""
        self._address = address
        self._credentials = credentials
        self._gate = gate
        self._send = send
        self._on_failed = on_failed
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._is_cancelled = False

    async def log_in(self) -> None:
        """Logs in. Raises LoginFailed, ConfigError, or a KafkaError of the connection: the gate stays closed then."""
        self._gate.begin_login()
        lifetime_ms = await log_in(self._send, self._credentials, self._address.host)
        if lifetime_ms and not self._is_cancelled:
            delay_s = lifetime_ms / 1000 * _LIFETIME_USED
            self._renewal = asyncio.get_running_loop().call_later(delay_s, self._begin_renewal)
        self._gate.end_login()

    def cancel(self) -> None:
        """Cancels the login because the connection is closed."""
        self._is_cancelled = True
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    def _begin_renewal(self) -> None:
        self._gate.begin_login()
        self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        try:
            await self.log_in()
        except (LoginFailed, ConfigError) as error:
            self._on_failed(explained(self._address, error))
        except KafkaError as error:
            self._on_failed(error)


def outgoing_security(settings: SecuritySettings) -> OutgoingSecurity | None:
    """Reads the files that the settings name. ConfigError. None: plain text."""
    if settings.security_protocol == "PLAINTEXT":
        return None
    context = None
    if settings.uses_tls:
        ssl_config, given = _ssl_config(settings)
        made = client_context(ssl_config, read_material(ssl_config, given=given))
        context = lambda: made  # noqa: E731 - brokers make another one when certificates change, clients do not
    return OutgoingSecurity(context=context, login=_credentials(settings) if settings.uses_sasl else None)


def _ssl_config(settings: SecuritySettings) -> tuple[SslConfig, frozenset[str]]:
    given = {
        "ssl.keystore.type": settings.ssl_keystore_type,
        "ssl.truststore.type": settings.ssl_truststore_type,
    }
    config = SslConfig(
        keystore_location=settings.ssl_keystore_location or None,
        keystore_password=settings.ssl_keystore_password or None,
        keystore_type=settings.ssl_keystore_type or "JKS",
        keystore_key=settings.ssl_keystore_key or None,
        keystore_certificate_chain=settings.ssl_keystore_certificate_chain or None,
        key_password=settings.ssl_key_password or None,
        truststore_location=settings.ssl_truststore_location or None,
        truststore_password=settings.ssl_truststore_password or None,
        truststore_type=settings.ssl_truststore_type or "JKS",
        truststore_certificates=settings.ssl_truststore_certificates or None,
        enabled_protocols=settings.ssl_enabled_protocols,
        cipher_suites=settings.ssl_cipher_suites,
        endpoint_identification_algorithm=settings.ssl_endpoint_identification_algorithm,
        secrets_others_may_read=settings.ssl_secrets_others_may_read,
    )
    return config, frozenset(key for key, value in given.items() if value)


def _credentials(settings: SecuritySettings) -> LoginCredentials:
    if settings.sasl_mechanism == OAUTHBEARER:
        if settings.sasl_oauthbearer_token or settings.sasl_oauthbearer_token_file:
            return LoginCredentials(mechanism=OAUTHBEARER, token=partial(_token, settings))
        endpoint = token_endpoint.TokenEndpoint(settings)
        return LoginCredentials(mechanism=OAUTHBEARER, token=endpoint.token, is_token_fetched=True)
    if settings.sasl_mechanism == GSSAPI:
        return LoginCredentials(mechanism=GSSAPI, kerberos=settings.kerberos)
    user, password, is_by_token = settings.login
    return LoginCredentials(
        mechanism=settings.sasl_mechanism, user=user, password=password, is_by_token=is_by_token
    )


def _token(settings: SecuritySettings) -> str:
    if settings.sasl_oauthbearer_token:
        return settings.sasl_oauthbearer_token
    content = read_secret_file(
        "sasl.oauthbearer.token.file",
        settings.sasl_oauthbearer_token_file,
        others_may_read=settings.ssl_secrets_others_may_read,
    )
    try:
        return content.decode("ascii").strip()
    except UnicodeDecodeError:
        raise ConfigError("sasl.oauthbearer.token.file holds no token: it is not ASCII") from None


def explained(address: Address, error: TlsFailure | LoginFailed | ConfigError) -> KafkaError:
    """Returns the client's error: in words for people, and retriable only if the peer just went."""
    if isinstance(error, TlsFailure) and error.code == HUNG_UP:
        return BrokerUnreachableError(
            f"no TLS with {address}: {error}: does it speak TLS (security.protocol)?"
        )
    if isinstance(error, TlsFailure):
        reason = explain_tls(error.code, error.verify_code, str(error), address.host)
        return WrongPeerError(f"no TLS with {address}: {reason}")
    return LoginError(f"cannot log in at {address}: {error}")
