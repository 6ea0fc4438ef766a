"""The settings of the connection to ZooKeeper: a part of `BrokerConfig` (`broker.py`).

The keys are those that Kafka had until 4.0. What Kafka takes from JAAS files, and for which it has no key, is
`odradek.zookeeper.*`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odradek.config.definition import (
    Bounds,
    Importance,
    Setting,
    SettingType,
    any_of,
    at_least,
    declare,
    one_of,
)
from odradek.model.errors import ConfigError

DIGEST: Final = "digest"
SASL: Final = "sasl"
_DEFAULT_PORT: Final = 2181
_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_PLAIN_SOCKET: Final = "org.apache.zookeeper.ClientCnxnSocketNIO"
# Patterns are compiled when there is a text: most brokers have none.
_HOST: Final = r"(\[[0-9A-Fa-f:.]+\]|[^\s:,/\[\]]+)(?::([0-9]{1,5}))?\Z"
_CHROOT: Final = r"(/(?!\.{1,2}(/|\Z))[^\x00-\x1f\x7f/]+)+\Z"


class ConnectString(NamedTuple):
    """Servers, and the path below which all znodes are (empty: the root)."""

    servers: tuple[tuple[str, int], ...]
    chroot: str

    @property
    def addresses(self) -> str:
        """The servers as they are written, without the path."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers
        )


def parse_connect(text: str) -> ConnectString:
    """`HOST:PORT,HOST:PORT/CHROOT`; ConfigError where it is none."""
    addresses, slash, path = text.strip().partition("/")
    chroot = (slash + path).rstrip("/")
    servers = []
    for address in addresses.split(","):
        match = re.match(_HOST, address.strip())
        port = int(match[2] or _DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 65536:
            raise ConfigError(f"{address.strip()!r} is no HOST:PORT")
        servers.append((match[1].strip("[]"), port))
    if chroot and not re.match(_CHROOT, chroot):
        raise ConfigError(f"{chroot!r} is no path of a znode")
    return ConnectString(servers=tuple(servers), chroot=chroot)


def _is_connect(text: str) -> bool:
    try:
        parse_connect(text)
    except ConfigError:
        return False
    return True


def _setting(key: str, type_: SettingType, default: object, meaning: str, valid: Bounds | None = None) -> Any:
    ranked = Importance.LOW if ".ssl." in key else Importance.HIGH
    return declare(
        Setting(key=key, type=type_, default=default, meaning=meaning, valid=valid, importance=ranked)
    )


_STORE_TYPE: Final = one_of("PEM")


# This class and those derived from it, but for `BrokerConfig` in the end, are only parts: making methods for each of them
# would cost as much of a broker's start as the one that is used.
@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class ZooKeeperConfig:
    """How a broker reaches ZooKeeper, if it is to."""

    zookeeper_connect: str | None = _setting(
        "zookeeper.connect",
        SettingType.STRING,
        None,
        "The ZooKeeper that coordinates the brokers: HOST:PORT,HOST:PORT/PATH; all znodes are below PATH. Not set: there is no "
        "ZooKeeper, the registry is a file (odradek.registry.dir).",
        Bounds(allowed="HOST:PORT,HOST:PORT/PATH", accepts=_is_connect),
    )
    zookeeper_session_timeout_ms: int = _setting(
        "zookeeper.session.timeout.ms",
        SettingType.INT,
        18_000,
        "How long ZooKeeper waits for a broker that is silent before others take over what it led. ZooKeeper bounds it: by "
        "default to 2 to 20 of its ticks.",
        at_least(1),
    )
    zookeeper_connection_timeout_ms: int | None = _setting(
        "zookeeper.connection.timeout.ms",
        SettingType.INT,
        None,
        "How long a broker that starts waits for ZooKeeper. Not set: zookeeper.session.timeout.ms.",
        at_least(1),
    )
    zookeeper_max_in_flight_requests: int = _setting(
        "zookeeper.max.in.flight.requests",
        SettingType.INT,
        10,
        "How many requests are sent to ZooKeeper before it has answered the first of them; others wait.",
        at_least(1),
    )
    zookeeper_set_acl: bool = _setting(
        "zookeeper.set.acl",
        SettingType.BOOLEAN,
        False,
        "Whether only those who log in to ZooKeeper as this broker does may read and change its znodes.",
    )
    zookeeper_auth_scheme: str = _setting(
        "odradek.zookeeper.auth.scheme",
        SettingType.STRING,
        DIGEST,
        "How the broker logs in with odradek.zookeeper.username: ZooKeeper's digest, or sasl (DIGEST-MD5, needs pure-sasl). "
        "Kafka takes both from a JAAS file.",
        one_of(DIGEST, SASL),
    )
    zookeeper_username: str | None = _setting(
        "odradek.zookeeper.username",
        SettingType.STRING,
        None,
        "The user as whom the broker logs in to ZooKeeper. Not set: it does not.",
    )
    zookeeper_password: str | None = _setting(
        "odradek.zookeeper.password",
        SettingType.PASSWORD,
        None,
        "The password of odradek.zookeeper.username.",
    )
    zookeeper_client_cnxn_socket: str | None = _setting(
        "zookeeper.clientCnxnSocket",
        SettingType.STRING,
        None,
        "A class of Kafka's Java client. Accepted; TLS is switched on by zookeeper.ssl.client.enable alone.",
    )
    zookeeper_ssl_client_enable: bool = _setting(
        "zookeeper.ssl.client.enable", SettingType.BOOLEAN, False, "Whether to talk TLS with ZooKeeper."
    )
    zookeeper_ssl_keystore_location: str | None = _setting(
        "zookeeper.ssl.keystore.location",
        SettingType.STRING,
        None,
        "A PEM file with the certificate and the private key that the broker shows to ZooKeeper.",
    )
    zookeeper_ssl_keystore_password: str | None = _setting(
        "zookeeper.ssl.keystore.password",
        SettingType.PASSWORD,
        None,
        "The password of the private key in zookeeper.ssl.keystore.location.",
    )
    zookeeper_ssl_keystore_type: str | None = _setting(
        "zookeeper.ssl.keystore.type",
        SettingType.STRING,
        None,
        "The format of the keystore. Java's own formats have to be converted.",
        _STORE_TYPE,
    )
    zookeeper_ssl_truststore_location: str | None = _setting(
        "zookeeper.ssl.truststore.location",
        SettingType.STRING,
        None,
        "A PEM file with the authorities that ZooKeeper's certificate may come from. Not set: those of the system.",
    )
    zookeeper_ssl_truststore_password: str | None = _setting(
        "zookeeper.ssl.truststore.password",
        SettingType.PASSWORD,
        None,
        "Accepted; a PEM file of certificates has no password.",
    )
    zookeeper_ssl_truststore_type: str | None = _setting(
        "zookeeper.ssl.truststore.type",
        SettingType.STRING,
        None,
        "The format of the truststore. Java's own formats have to be converted.",
        _STORE_TYPE,
    )
    zookeeper_ssl_protocol: str | None = _setting(
        "zookeeper.ssl.protocol",
        SettingType.STRING,
        None,
        "The version of TLS where zookeeper.ssl.enabled.protocols is not set. Neither set: 1.2 or 1.3.",
        one_of("TLS", *_TLS_VERSIONS),
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = _setting(
        "zookeeper.ssl.enabled.protocols",
        SettingType.LIST,
        (),
        "The versions of TLS to offer.",
        any_of(*_TLS_VERSIONS),
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] = _setting(
        "zookeeper.ssl.cipher.suites",
        SettingType.LIST,
        (),
        "The cipher suites of TLS 1.2 to offer, by OpenSSL's names. Not set: OpenSSL's defaults.",
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = _setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        SettingType.STRING,
        "HTTPS",
        "HTTPS: the name in ZooKeeper's certificate must be the host that was connected to; empty: any name will do.",
        Bounds(allowed="HTTPS, or nothing", accepts=lambda name: name.upper() in ("HTTPS", "")),
    )


def check_zookeeper(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """What of these settings does not go together is a ConfigError; nothing is derived."""
    username, password = parsed.get("odradek.zookeeper.username"), parsed.get("odradek.zookeeper.password")
    if (username is None) != (password is None):
        raise ConfigError(
            "odradek.zookeeper.username and odradek.zookeeper.password are only allowed together"
        )
    tls = parsed.get("zookeeper.ssl.client.enable", False)
    if tls and parsed.get("zookeeper.clientCnxnSocket") == _PLAIN_SOCKET:
        raise ConfigError(
            f"zookeeper.clientCnxnSocket={_PLAIN_SOCKET} is not allowed: it has no TLS, which "
            "zookeeper.ssl.client.enable=true asks for"
        )
    certificate = tls and parsed.get("zookeeper.ssl.keystore.location")
    if parsed.get("zookeeper.set.acl") and username is None and not certificate:
        raise ConfigError(
            "zookeeper.set.acl=true is not allowed: without odradek.zookeeper.username and .password, or a certificate "
            "(zookeeper.ssl.keystore.location), ZooKeeper does not know whom to let in"
        )
    for store in ("keystore", "truststore"):
        location = parsed.get(f"zookeeper.ssl.{store}.location")
        if location and location.lower().endswith((".jks", ".p12", ".pfx", ".bcfks")):
            raise ConfigError(
                f"zookeeper.ssl.{store}.location={location!r} is not allowed: expected a PEM file; convert it with Java's "
                "keytool (to PKCS12) and with openssl pkcs12"
            )
    return {}
