"""`odradek serve --secure DIR`: a CA, certificates, users and settings for a broker that lets no one in without a login.

What is there already is used again; passwords are shown when they are made, and kept in files that only their owner can read.
"""

from __future__ import annotations

import datetime
import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.cli.output import say_lines
from odradek.config.listening.listener_addresses import at_address
from odradek.config.listening.listeners import format_address, parse_host_port
from odradek.config.sources import Source
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.config.files import properties as config_properties
    from odradek.security.tls import authority
else:
    config_properties = lazy("odradek.config.files.properties")
    authority = lazy("odradek.security.tls.authority")

ADMIN, BROKER = "admin", "broker"
MECHANISM: Final = "SCRAM-SHA-512"
LISTENER: Final = "SASL_SSL"
DEFAULT_LISTEN: Final = "127.0.0.1:9092"
_PASSWORD_BYTES: Final = 18
_PORT_LATER: Final = "PORT"
_FREE_PORT_WORDS: Final = """
the system chooses the port: write the one of the line "ready HOST:PORT" for PORT, and as bootstrap.servers in client.properties
"""
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_RULES_AGE_MS: Final = "30000"
_EVERYONE: Final = "allow.everyone.if.no.acl.found"
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def secure_source(directory: str, listen: str | None, *, is_quiet: bool = False, brokers: int = 1) -> Source:
    """Returns the settings in DIR, made on the first run; `listen` changes their address. ConfigError without `cryptography`.
    Of several `brokers`, whose ports follow one another, the client's file names all.

    They say that no client may do what no ACL is about, so that a weaker source cannot open the broker to everyone.
    """
    place = Path(directory).absolute()
    settings = place / "server.properties"
    if not settings.exists():
        words = _make(place, listen, brokers)
        if not is_quiet:
            say_lines(words, err=True)
    values = config_properties.parse_properties(settings.read_text(encoding="utf-8")).values
    if listen is not None:
        values = {**values, "listeners": at_address(values, listen)}
    return Source(name=str(settings), values={_EVERYONE: "false", **values})


def _make(place: Path, listen: str | None, brokers: int) -> str:
    """Makes the keys and users; returns the message about them."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    now = datetime.datetime.now(datetime.UTC)
    signer = authority.CertificateAuthority.new("odradek", now=now)
    hosts = dict.fromkeys(("localhost", "127.0.0.1", "::1", socket.gethostname()))
    host = parse_host_port(listen or DEFAULT_LISTEN)[0]
    if host not in ("", "0.0.0.0", "::"):
        hosts[host] = None
    broker = signer.issue(authority.CertificateRequest(name="odradek-broker", hosts=list(hosts)), now=now)
    passwords = {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in (ADMIN, BROKER)}
    write_private(place / "ca.key", signer.issued.key)
    (place / "ca.pem").write_bytes(signer.issued.certificate)
    write_private(place / "broker.pem", broker.pem)
    client = client_settings(place, passwords[ADMIN])
    host, port = parse_host_port(listen or DEFAULT_LISTEN)
    address = format_address(host, port)
    reached = (
        ",".join(format_address(host, port + number) for number in range(brokers))
        if port
        else f"{address.rpartition(':')[0]}:{_PORT_LATER}"
    )
    if port:
        client = {"bootstrap.servers": reached, **client}
    write_private(place / "client.properties", config_properties.format_properties(dict(client)).encode())
    server = config_properties.format_properties(
        {"listeners": f"{LISTENER}://{address}", **_server_settings(place, passwords)}
    )
    write_private(place / "server.properties", server.encode())
    return _words(place, client, reached) + ("" if port else _FREE_PORT_WORDS)


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, from its first byte on, also where it exists already. Follows no link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(content)


def _server_settings(place: Path, passwords: Mapping[str, str]) -> dict[str, str]:
    users = ";".join(f"{MECHANISM}=[name={name},password={text}]" for name, text in passwords.items())
    return {
        "ssl.keystore.location": str(place / "broker.pem"),
        "ssl.truststore.location": str(place / "ca.pem"),
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.jaas.config": f'{_SCRAM_MODULE} required username="{BROKER}" password="{passwords[BROKER]}";',
        "odradek.scram.first.users": users,
        "authorizer.class.name": _AUTHORIZER,
        "super.users": f"User:{ADMIN};User:{BROKER}",
        "odradek.access.max.age.ms": _RULES_AGE_MS,
    }


def client_settings(place: Path, password: str, *, user: str = ADMIN) -> dict[str, str]:
    """Returns settings for Java's clients, ours and `odradek --command-config`."""
    return {
        "security.protocol": LISTENER,
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_SCRAM_MODULE} required username="{user}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(place / "ca.pem"),
    }


def _words(place: Path, client: Mapping[str, str], address: str) -> str:
    password = client["sasl.jaas.config"].rpartition('password="')[2].rstrip('";')
    return f"""\
made in {place}: an authority (ca.pem, ca.key), a certificate (broker.pem), settings (server.properties)
the first user is {ADMIN}, its password {password} (kept in client.properties, which only you can read)

  odradek    export ODRADEK_CLIENT_CONFIG={place}/client.properties; odradek topic list -b {address}
  Java       --command-config {place}/client.properties
  librdkafka bootstrap.servers={address} security.protocol={LISTENER} ssl.ca.location={place}/ca.pem
             sasl.mechanisms={MECHANISM} sasl.username={ADMIN} sasl.password={password}
  Python     odradek.Producer("{address}", security_protocol="{LISTENER}", sasl_mechanism="{MECHANISM}",
               sasl_username="{ADMIN}", sasl_password="...", ssl_truststore_location="{place}/ca.pem")
  Spark      .option("kafka.bootstrap.servers", "{address}").option("kafka.security.protocol", "{LISTENER}")
               .option("kafka.sasl.mechanism", "{MECHANISM}").option("kafka.sasl.username", "{ADMIN}")
               .option("kafka.sasl.password", "...").option("kafka.ssl.truststore.location", "{place}/ca.pem")
"""
