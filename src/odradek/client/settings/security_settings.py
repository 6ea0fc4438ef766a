"""Settings for the security of clients' connections: Kafka's settings, and a few that are shorter."""

from __future__ import annotations

from typing import Final, Self

from odradek.config.definition import Bounds, any_of, at_least, one_of
from odradek.config.files.secret_files import read_secret_file
from odradek.config.jaas import LoginModule, login_module_in, parse_jaas
from odradek.config.kerberos import SERVICE_NAME, KerberosIdentity, kerberos_identity
from odradek.config.listening.listeners import SECURITY_PROTOCOLS
from odradek.config.sasl import GSSAPI, MECHANISMS, OAUTHBEARER, TokenClient
from odradek.config.section import LOW, Boolean, Int, List, Password, Section, String, section, setting
from odradek.config.tls import TLS_VERSIONS
from odradek.model.errors import ConfigError

_STORE_TYPES: Final = one_of("", "PEM", "PKCS12", "JKS")
LOGIN_CONFIG: Final = "java.security.auth.login.config"
_JAVA_SECTION: Final = "KafkaClient"
"""The section of that file that Kafka's Java clients read."""
_HOSTS: Final = Bounds(allowed="https, or nothing", accepts=lambda name: name.lower() in ("https", ""))
OTHER_SPELLINGS: Final = {
    "ssl.ca.location": "ssl_truststore_location",
    "sasl.mechanisms": "sasl_mechanism",
}
"""librdkafka's names of what Kafka has under another."""


@section()
class SecuritySettings(Section):
    """The security settings of every client."""

    # fmt: off
    security_protocol: String = setting(default="PLAINTEXT", valid=one_of(*SECURITY_PROTOCOLS), meaning=
        "how to talk to brokers: with TLS (SSL, SASL_SSL), with a login (SASL_SSL, SASL_PLAINTEXT), with neither")
    sasl_mechanism: String = setting(default="", valid=one_of("", *MECHANISMS), meaning=
        "how to log in: SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER or GSSAPI")
    sasl_username: String = setting(default="", meaning=
        "Odradek's own, short for sasl.jaas.config: as whom to log in")
    sasl_password: Password = setting(default="", meaning=
        "and with which password")
    sasl_jaas_config: Password = setting(default="", meaning=
        "a login module as Java's clients have it, with username and password")
    java_security_auth_login_config: String = setting(default="", meaning=
        "Java's file of login modules, whose section KafkaClient counts where sasl.jaas.config is not set")
    sasl_kerberos_service_name: String = setting(default="", meaning=
        "for GSSAPI: the first part of brokers' principals, kafka of kafka/host@REALM")
    sasl_oauthbearer_token: Password = setting(default="", meaning=
        "Odradek's own: the token for OAUTHBEARER")
    sasl_oauthbearer_token_file: String = setting(default="", meaning=
        "Odradek's own: a file with that token, read at each login")
    sasl_oauthbearer_token_endpoint_url: String = setting(default="", meaning=
        "where the issuer gives tokens for an id and a secret: clientId and clientSecret in sasl.jaas.config, or these two")
    sasl_oauthbearer_client_credentials_client_id: String = setting(default="", meaning=
        "this client's id at the issuer")
    sasl_oauthbearer_client_credentials_client_secret: Password = setting(default="", meaning=
        "and its secret")
    sasl_oauthbearer_scope: String = setting(default="", meaning=
        "which scope to ask the issuer for; empty: none")
    sasl_oauthbearer_header_urlencode: Boolean = setting(default=False, importance=LOW, meaning=
        "whether id and secret go to the issuer URL-encoded, as some issuers ask for (KIP-1025)")
    sasl_login_connect_timeout_ms: Int = setting(default=10_000, valid=at_least(1), importance=LOW, meaning=
        "how long to wait for a connection to the issuer")
    sasl_login_read_timeout_ms: Int = setting(default=10_000, valid=at_least(1), importance=LOW, meaning=
        "how long to wait for its answer")
    ssl_truststore_location: String = setting(default="", meaning=
        "the authorities that brokers' certificates may come from: PEM, PKCS#12 or JKS; empty: the system's authorities")
    ssl_truststore_password: Password = setting(default="", meaning=
        "the password of that file, if it has one")
    ssl_truststore_type: String = setting(default="", valid=_STORE_TYPES, meaning=
        "its format; empty: the file says it")
    ssl_truststore_certificates: Password = setting(default="", meaning=
        "the authorities themselves, as PEM")
    ssl_keystore_location: String = setting(default="", meaning=
        "this client's own key and certificate: PEM, PKCS#12 or JKS")
    ssl_keystore_password: Password = setting(default="", meaning=
        "the password of that file")
    ssl_keystore_type: String = setting(default="", valid=_STORE_TYPES, meaning=
        "its format; empty: the file says it")
    ssl_keystore_key: Password = setting(default="", meaning=
        "the private key itself, as PEM")
    ssl_keystore_certificate_chain: Password = setting(default="", meaning=
        "and its certificates, as PEM")
    ssl_key_password: Password = setting(default="", meaning=
        "the password of the private key")
    ssl_enabled_protocols: List = setting(default=TLS_VERSIONS, valid=any_of(*TLS_VERSIONS), importance=LOW, meaning=
        "the versions of TLS to speak")
    ssl_cipher_suites: List = setting(default=(), importance=LOW, meaning=
        "the cipher suites to use; empty: OpenSSL's choice")
    ssl_endpoint_identification_algorithm: String = setting(default="https", valid=_HOSTS, meaning=
        "https: a broker's certificate must name the host that was connected to; empty: any will do")
    ssl_secrets_others_may_read: Boolean = setting("odradek.secret.files.readable.by.others", default=False, importance=LOW,
        meaning=
        "Odradek's own: whether a file with a private key may be readable by every user of the machine")
    # fmt: on

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol in ("SASL_SSL", "SASL_PLAINTEXT")

    def check_security(self) -> Self:
        """Raises ConfigError for what does not go together. Files are not looked at, but Java's of login modules."""
        if not self.uses_sasl:
            if self.sasl_mechanism and (self.sasl_username or self.sasl_jaas_config):
                raise ConfigError(
                    f"sasl.mechanism={self.sasl_mechanism} has no effect with security.protocol={self.security_protocol}: "
                    "set security.protocol=SASL_SSL"
                )
            return self
        if not self.sasl_mechanism:
            raise ConfigError(
                f"security.protocol={self.security_protocol} needs sasl.mechanism, such as SCRAM-SHA-512"
            )
        if self.sasl_mechanism == OAUTHBEARER:
            self._check_token()
            return self
        if self.sasl_mechanism == GSSAPI:
            if not self.kerberos.service:
                raise ConfigError(f"sasl.mechanism=GSSAPI needs {SERVICE_NAME}, such as kafka")
            return self
        user, password, _ = self.login
        if not user or not password:
            raise ConfigError(
                f"sasl.mechanism={self.sasl_mechanism} needs sasl.username and sasl.password, or"
                f" sasl.jaas.config, or {LOGIN_CONFIG}"
            )
        return self

    def _check_token(self) -> None:
        if self.sasl_oauthbearer_token or self.sasl_oauthbearer_token_file:
            return
        if not self.sasl_oauthbearer_token_endpoint_url:
            raise ConfigError(
                "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token.file or sasl.oauthbearer.token.endpoint.url"
            )
        _ = self.token_client

    @property
    def token_client(self) -> TokenClient:
        """The identity under which this client requests tokens. Raises ConfigError."""
        jaas = self._login_module
        return TokenClient.of(
            {} if jaas is None else jaas.options,
            name=self.sasl_oauthbearer_client_credentials_client_id,
            secret=self.sasl_oauthbearer_client_credentials_client_secret,
            scope=self.sasl_oauthbearer_scope,
            is_url_encoded=self.sasl_oauthbearer_header_urlencode,
        )

    @property
    def kerberos(self) -> KerberosIdentity:
        """The Kerberos identity; without sasl.jaas.config the one that `kinit` left. Raises ConfigError."""
        return kerberos_identity(self._login_module, self.sasl_kerberos_service_name, key="sasl.jaas.config")

    @property
    def login(self) -> tuple[str, str, bool]:
        """User, password, and whether they are a delegation token's. Raises ConfigError."""
        jaas = None if self.sasl_username and not self.sasl_jaas_config else self._login_module
        if jaas is None:
            return self.sasl_username, self.sasl_password, False
        return jaas.options.get("username", ""), jaas.options.get("password", ""), jaas.flag("tokenauth")

    @property
    def _login_module(self) -> LoginModule | None:
        """Returns the login module of `sasl.jaas.config`, or else of Java's file. ConfigError."""
        if self.sasl_jaas_config:
            return parse_jaas(self.sasl_jaas_config)
        path = self.java_security_auth_login_config
        if not path:
            return None
        content = read_secret_file(LOGIN_CONFIG, path, others_may_read=self.ssl_secrets_others_may_read)
        text = content.decode("utf-8", "replace")
        return login_module_in(text, _JAVA_SECTION, f"{LOGIN_CONFIG}={path!r}")
