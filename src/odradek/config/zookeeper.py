"""The settings of the connection to ZooKeeper.

The keys are those that Kafka had until 4.0. What Kafka takes from JAAS files, and for which it has no key, is
`odradek.zookeeper.*`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.config.definition import Bounds, any_of, at_least, one_of
from odradek.config.section import HIGH, LOW, Boolean, Int, List, Password, Section, String, section, setting
from odradek.model.errors import ConfigError
from odradek.model.java_numbers import trimmed

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
    """Parses `HOST:PORT,HOST:PORT/CHROOT`; raises ConfigError for another text."""
    addresses, slash, path = trimmed(text).partition("/")
    chroot = (slash + path).rstrip("/")
    servers = []
    for address in addresses.split(","):
        match = re.match(_HOST, trimmed(address))
        port = int(match[2] or _DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 65536:
            raise ConfigError(f"{address.strip()!r:.80} is no HOST:PORT")
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


_STORE_TYPE: Final = one_of("PEM")


@section("zookeeper.")
class ZooKeeperConfig(Section):
    """How a broker reaches ZooKeeper, if it is to."""

    # fmt: off
    connect: String | None = setting(default=None,
        valid=Bounds(allowed="HOST:PORT,HOST:PORT/PATH", accepts=_is_connect), importance=HIGH, meaning=
        "The ZooKeeper that coordinates the brokers: HOST:PORT,HOST:PORT/PATH; all znodes are below PATH. Not set: there is no "
        "ZooKeeper, the registry is a file (odradek.registry.dir).")
    session_timeout_ms: Int = setting(default=18_000, valid=at_least(1), importance=HIGH, meaning=
        "How long ZooKeeper waits for a broker that is silent before others take over what it led. ZooKeeper bounds it: by "
        "default to 2 to 20 of its ticks.")
    connection_timeout_ms: Int | None = setting(default=None, valid=at_least(1), importance=HIGH, meaning=
        "How long a broker that starts waits for ZooKeeper. Not set: zookeeper.session.timeout.ms.")
    max_in_flight_requests: Int = setting(default=10, valid=at_least(1), importance=HIGH, meaning=
        "How many requests are sent to ZooKeeper before it has answered the first of them; others wait.")
    set_acl: Boolean = setting(default=False, importance=HIGH, meaning=
        "Whether only clients that log in to ZooKeeper as this broker does may read and change its znodes.")
    auth_scheme: String = setting("odradek.zookeeper.auth.scheme", default=DIGEST, valid=one_of(DIGEST, SASL),
        importance=HIGH, meaning=
        "How the broker logs in with odradek.zookeeper.username: ZooKeeper's digest, or sasl (DIGEST-MD5, needs pure-sasl). "
        "Kafka takes both from a JAAS file.")
    username: String | None = setting("odradek.zookeeper.username", default=None, importance=HIGH, meaning=
        "The user as whom the broker logs in to ZooKeeper. Not set: it does not.")
    password: Password | None = setting("odradek.zookeeper.password", default=None, importance=HIGH, meaning=
        "The password of odradek.zookeeper.username.")
    client_cnxn_socket: String | None = setting("zookeeper.clientCnxnSocket", default=None, importance=HIGH, meaning=
        "A class of Kafka's Java client. Accepted; TLS is switched on by zookeeper.ssl.client.enable alone.")
    ssl_client_enable: Boolean = setting(default=False, importance=LOW, meaning=
        "Whether to talk TLS with ZooKeeper.")
    ssl_keystore_location: String | None = setting(default=None, importance=LOW, meaning=
        "A PEM file with the certificate and the private key that the broker shows to ZooKeeper.")
    ssl_keystore_password: Password | None = setting(default=None, importance=LOW, meaning=
        "The password of the private key in zookeeper.ssl.keystore.location.")
    ssl_keystore_type: String | None = setting(default=None, valid=_STORE_TYPE, importance=LOW, meaning=
        "The format of the keystore. Java's own formats must be converted.")
    ssl_truststore_location: String | None = setting(default=None, importance=LOW, meaning=
        "A PEM file with the authorities that ZooKeeper's certificate may come from. Not set: the system's authorities.")
    ssl_truststore_password: Password | None = setting(default=None, importance=LOW, meaning=
        "Accepted; a PEM file of certificates has no password.")
    ssl_truststore_type: String | None = setting(default=None, valid=_STORE_TYPE, importance=LOW, meaning=
        "The format of the truststore. Java's own formats must be converted.")
    ssl_protocol: String | None = setting(default=None, valid=one_of("TLS", *_TLS_VERSIONS), importance=LOW, meaning=
        "The version of TLS where zookeeper.ssl.enabled.protocols is not set. Neither set: 1.2 or 1.3.")
    ssl_enabled_protocols: List = setting(default=(), valid=any_of(*_TLS_VERSIONS), importance=LOW, meaning=
        "The versions of TLS to offer.")
    ssl_cipher_suites: List = setting(default=(), importance=LOW, meaning=
        "The cipher suites of TLS 1.2 to offer, by OpenSSL's names. Not set: OpenSSL's defaults.")
    ssl_endpoint_identification_algorithm: String = setting(default="HTTPS",
        valid=Bounds(allowed="HTTPS, or nothing", accepts=lambda name: name.upper() in ("HTTPS", "")), importance=LOW,
        meaning=
        "HTTPS: the name in ZooKeeper's certificate must be the host that was connected to; empty: any name will do.")
    # fmt: on


def check_zookeeper(parsed: Mapping[str, object]) -> dict[str, object]:
    """Raises ConfigError for settings that do not fit together; derives nothing."""
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
        if location and str(location).lower().endswith((".jks", ".p12", ".pfx", ".bcfks")):
            raise ConfigError(
                f"zookeeper.ssl.{store}.location={location!r} is not allowed: expected a PEM file; convert it with Java's "
                "keytool (to PKCS12) and with openssl pkcs12"
            )
    return {}
