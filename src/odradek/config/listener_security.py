"""The security of each listener: the settings of all listeners, and over them `listener.name.NAME.…` of one.

Some SASL settings may also apply to one mechanism of one listener:
`listener.name.NAME.MECHANISM.sasl.jaas.config`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any, Final

from odradek.config.definition import DynamicUpdate, Setting
from odradek.config.jaas import LoginModule, parse_jaas
from odradek.config.kerberos import KerberosIdentity, kerberos_identity
from odradek.config.listening.listeners import Listener
from odradek.config.sasl import (
    GSSAPI,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SCRAM_MECHANISMS,
    TOKEN_ENDPOINT,
    SaslConfig,
    TokenClient,
)
from odradek.config.section import Section
from odradek.config.tls import SslConfig
from odradek.model.errors import ConfigError

PREFIX: Final = "listener.name."
JAAS: Final = "sasl.jaas.config"
REAUTH: Final = "connections.max.reauth.ms"
_OF_A_MECHANISM: Final = (JAAS, REAUTH)
_ANONYMOUS_MODULES: Final = ("OAuthBearerLoginModule",)


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismSettings:
    """The settings of one mechanism of a listener."""

    jaas: LoginModule | None = field(default=None, repr=False)
    max_reauth_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """The security of the connections of one listener."""

    protocol: str = "PLAINTEXT"
    ssl: SslConfig = field(default_factory=SslConfig)
    sasl: SaslConfig = field(default_factory=SaslConfig)
    mechanisms: Mapping[str, MechanismSettings] = field(default_factory=dict)
    """Settings of the enabled mechanisms, by name."""
    given: frozenset[str] = frozenset()
    """Keys that were set, without the listener's prefix."""

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def kerberos(self) -> KerberosIdentity | None:
        """This broker's Kerberos identity; None where GSSAPI is not enabled. Raises ConfigError."""
        settings = self.mechanisms.get(GSSAPI)
        if settings is None:
            return None
        return kerberos_identity(settings.jaas, self.sasl.kerberos_service_name or "", key=JAAS)

    @property
    def needs_own_token(self) -> bool:
        """True if this broker logs in to another one's listener of this name with a token, and can get one."""
        return (
            OAUTHBEARER in self.mechanisms
            and self.inter_broker_mechanism == OAUTHBEARER
            and self.sasl.oauthbearer_token_endpoint_url is not None
        )

    @property
    def token_client(self) -> TokenClient:
        """This broker's identity for the issuer of its token. Raises ConfigError."""
        jaas, sasl = self.mechanisms[OAUTHBEARER].jaas, self.sasl
        return TokenClient.of(
            {} if jaas is None else jaas.options,
            name=sasl.oauthbearer_client_credentials_client_id,
            secret=sasl.oauthbearer_client_credentials_client_secret,
            scope=sasl.oauthbearer_scope,
            is_url_encoded=sasl.oauthbearer_header_urlencode,
        )

    @property
    def inter_broker_mechanism(self) -> str:
        """The mechanism of this broker's login to another broker's listener of this name."""
        if "sasl.mechanism.inter.broker.protocol" not in self.given and len(self.mechanisms) == 1:
            return next(iter(self.mechanisms))
        return self.sasl.mechanism_inter_broker_protocol


def listener_security(
    values: Mapping[str, str], listeners: Iterable[Listener], advertised: Iterable[Listener] = ()
) -> tuple[dict[str, ListenerSecurity], list[str]]:
    """Returns the security of each listener, by its name, and warnings. Raises ConfigError for impossible settings.
    `advertised` are the addresses for clients."""
    problems: list[str] = []
    warnings: list[str] = []
    security: dict[str, ListenerSecurity] = {}
    overrides = _overrides(values)
    listeners = list(listeners)
    for listener in listeners:
        own = overrides.pop(listener.name.lower(), {})
        try:
            security[listener.name] = _of(listener, values, own, warnings)
        except ConfigError as error:
            problems.append(str(error))
    warnings.extend(f"{PREFIX}{name}.*: no listener is named {name.upper()}" for name in overrides)
    if problems:
        raise ConfigError("; ".join(problems))
    warnings += _idle(values, security)
    warnings += _without_host_name(listeners, {listener.name: listener for listener in advertised}, security)
    return security, warnings


def _without_host_name(
    listeners: Iterable[Listener],
    advertised: Mapping[str, Listener],
    security: Mapping[str, ListenerSecurity],
) -> Iterator[str]:
    """Warnings about listeners with Kerberos whose clients are sent to an address: a ticket is for a name."""
    for listener in listeners:
        if GSSAPI not in security[listener.name].mechanisms:
            continue
        reached = advertised.get(listener.name, listener)
        if _is_address(reached.host):
            where = f"advertises {reached.host}" if listener.name in advertised else "advertises no name"
            yield (
                f"listener {listener} has GSSAPI and {where}: clients ask for a ticket of kafka/NAME, and an address is "
                f"no name; set advertised.listeners to {listener.name}://NAME:{reached.port or 'PORT'}"
            )


def _is_address(host: str) -> bool:
    try:
        ip_address(host or "0.0.0.0")
    except ValueError:
        return False
    return True


def _idle(values: Mapping[str, str], security: Mapping[str, ListenerSecurity]) -> Iterator[str]:
    """Warnings about settings that no listener needs."""
    uses = {
        SslConfig: any(listener.uses_tls for listener in security.values()),
        SaslConfig: any(listener.uses_sasl for listener in security.values()),
    }
    for key, (section, _) in _settings().items():
        if key in values and not uses[section] and key.startswith(("ssl.", "sasl.")):
            what = "has TLS" if section is SslConfig else "has SASL"
            yield f"setting {key} has no effect: no listener {what}"


def is_of_listener(key: str) -> bool:
    """Returns whether a key is of one listener, and of a kind that has an effect."""
    return key.startswith(PREFIX) and key.removeprefix(PREFIX).partition(".")[2] != ""


def dynamic_of_listener(key: str) -> DynamicUpdate:
    """Returns whether a running broker takes a new value of a listener's own key."""
    name = key.removeprefix(PREFIX).partition(".")[2]
    if _split_mechanism(name) is not None:
        return DynamicUpdate.PER_BROKER
    known = _settings().get(name)
    return DynamicUpdate.READ_ONLY if known is None else known[1].dynamic


def is_sensitive_of_listener(key: str) -> bool:
    """Returns whether the value must never be shown: an unknown key counts as a secret."""
    name = key.removeprefix(PREFIX).partition(".")[2]
    mechanism = _split_mechanism(name)
    known = _settings().get(name if mechanism is None else mechanism[1])
    return known is None or known[1].sensitive


def _overrides(values: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns the keys of each listener without their prefix, by its name in lower case."""
    overrides: dict[str, dict[str, str]] = {}
    for key, text in values.items():
        if is_of_listener(key):
            name, _, rest = key.removeprefix(PREFIX).partition(".")
            overrides.setdefault(name.lower(), {})[rest] = text
    return overrides


def _settings() -> dict[str, tuple[type[Section], Setting]]:
    return {
        setting.key: (section, setting)
        for section in (SslConfig, SaslConfig)
        for setting in section.settings.values()
    }


def _split_mechanism(name: str) -> tuple[str, str] | None:
    """Splits `scram-sha-256.sasl.jaas.config` into (SCRAM-SHA-256, sasl.jaas.config)."""
    mechanism, _, rest = name.partition(".")
    if mechanism.upper() in MECHANISMS and rest in _OF_A_MECHANISM:
        return mechanism.upper(), rest
    return None


def _of(
    listener: Listener, values: Mapping[str, str], own: Mapping[str, str], warnings: list[str]
) -> ListenerSecurity:
    known = _settings()
    parsed: dict[type[Section], dict[str, Any]] = {SslConfig: {}, SaslConfig: {}}
    given: set[str] = set()
    prefix = f"{PREFIX}{listener.name.lower()}."
    of_mechanisms: dict[str, dict[str, str]] = {}
    for source, where in ((values, ""), (own, prefix)):
        for key, text in source.items():
            mechanism = _split_mechanism(key) if where else None
            if mechanism is not None:
                of_mechanisms.setdefault(mechanism[0], {})[mechanism[1]] = text
            elif key in known:
                section, setting = known[key]
                names = {declared.key: name for name, declared in section.settings.items()}
                parsed[section][names[key]] = replace(setting, key=where + key).parse(text)
                given.add(key)
            elif where:
                warnings.append(f"setting {where}{key} is not supported yet and has no effect")
    security = ListenerSecurity(
        protocol=listener.protocol,
        ssl=SslConfig(**parsed[SslConfig]),
        sasl=SaslConfig(**parsed[SaslConfig]),
        given=frozenset(given),
    )
    if security.uses_tls:
        _check_tls(listener, security)
    if security.uses_sasl:
        security = replace(security, mechanisms=_mechanisms(listener, security, prefix, of_mechanisms))
        _check_plain(listener, security)
        _check_bearer(listener, security)
        _check_kerberos(listener, security)
    return security


def _check_tls(listener: Listener, security: ListenerSecurity) -> None:
    ssl = security.ssl
    if ssl.keystore_location is None and ssl.keystore_key is None:
        raise ConfigError(
            f"listener {listener} needs a certificate: set ssl.keystore.location or ssl.keystore.key and "
            "ssl.keystore.certificate.chain. `odradek cert` makes one, `odradek serve --secure DIR` all of it"
        )
    if (ssl.keystore_key is None) != (ssl.keystore_certificate_chain is None):
        raise ConfigError(
            f"listener {listener}: ssl.keystore.key and ssl.keystore.certificate.chain go together"
        )
    if ssl.client_auth == "required" and not (ssl.truststore_location or ssl.truststore_certificates):
        raise ConfigError(
            f"listener {listener}: ssl.client.auth=required needs the authorities of clients' certificates: set "
            "ssl.truststore.location"
        )


def _mechanisms(
    listener: Listener,
    security: ListenerSecurity,
    prefix: str,
    of_mechanisms: Mapping[str, Mapping[str, str]],
) -> dict[str, MechanismSettings]:
    sasl = security.sasl
    mechanisms = {}
    for mechanism in sasl.enabled_mechanisms:
        own = of_mechanisms.get(mechanism, {})
        text, key = sasl.jaas_config, JAAS
        if JAAS in own:
            text, key = own[JAAS], f"{prefix}{mechanism.lower()}.{JAAS}"
        reauth_ms = sasl.max_reauth_ms
        if REAUTH in own:
            setting = SaslConfig.settings["max_reauth_ms"]
            reauth_ms = setting.parse(own[REAUTH])
        jaas = None if text is None else parse_jaas(text, key=key)
        if jaas is not None and not _fits(jaas, mechanism) and JAAS not in own:
            jaas = None  # it is another mechanism's
        mechanisms[mechanism] = MechanismSettings(jaas=jaas, max_reauth_ms=reauth_ms)
    if not mechanisms:
        raise ConfigError(f"listener {listener}: sasl.enabled.mechanisms is empty")
    return mechanisms


def _fits(jaas: LoginModule, mechanism: str) -> bool:
    """Returns whether a login module is one of this mechanism; an unknown module fits every mechanism."""
    modules = {"PlainLoginModule": (PLAIN,), "ScramLoginModule": SCRAM_MECHANISMS}
    modules |= dict.fromkeys(_ANONYMOUS_MODULES, (OAUTHBEARER,)) | {"Krb5LoginModule": (GSSAPI,)}
    wanted = modules.get(jaas.name.rpartition(".")[2])
    return wanted is None or mechanism in wanted


def _check_plain(listener: Listener, security: ListenerSecurity) -> None:
    plain = security.mechanisms.get(PLAIN)
    if plain is None:
        return
    if not security.uses_tls and not security.sasl.plain_without_tls_enable:
        raise ConfigError(
            f"listener {listener}: PLAIN sends passwords as they are, and this listener has no TLS: use SASL_SSL, or SCRAM, "
            "or set odradek.sasl.plain.without.tls.enable=true"
        )
    if plain.jaas is None or not plain.jaas.users:
        raise ConfigError(
            f"listener {listener}: PLAIN knows no user: set {PREFIX}{listener.name.lower()}.plain.{JAAS} to "
            '`org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD";`'
        )


def _check_bearer(listener: Listener, security: ListenerSecurity) -> None:
    sasl = security.sasl
    has_keys = sasl.oauthbearer_jwks_endpoint_url is not None
    if OAUTHBEARER in security.mechanisms and not has_keys and not sasl.oauthbearer_unsecured_enable:
        raise ConfigError(
            f"listener {listener}: OAUTHBEARER needs its issuer's keys: set sasl.oauthbearer.jwks.endpoint.url to a "
            "file:// or https:// URL"
        )
    if OAUTHBEARER not in security.mechanisms or security.inter_broker_mechanism != OAUTHBEARER:
        return
    if security.needs_own_token:
        _ = security.token_client
    elif "sasl.mechanism.inter.broker.protocol" in security.given:
        raise ConfigError(
            f"listener {listener}: sasl.mechanism.inter.broker.protocol=OAUTHBEARER needs {TOKEN_ENDPOINT}, where this broker "
            "gets its token"
        )


def _check_kerberos(listener: Listener, security: ListenerSecurity) -> None:
    gssapi = security.mechanisms.get(GSSAPI)
    if gssapi is None:
        return
    if gssapi.jaas is None:
        raise ConfigError(
            f"listener {listener}: GSSAPI, which sasl.enabled.mechanisms is when it is not set, needs this broker's key: set "
            f"{PREFIX}{listener.name.lower()}.gssapi.{JAAS} to `com.sun.security.auth.module.Krb5LoginModule required "
            'useKeyTab=true keyTab="FILE" principal="kafka/HOST@REALM";`, or sasl.enabled.mechanisms to SCRAM-SHA-512'
        )
    _ = security.kerberos
