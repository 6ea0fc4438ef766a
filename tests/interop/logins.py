"""Brokers with TLS, a login and ACLs, and what each client needs to come in.

`pytest tests/interop/groups --secured` runs tests against such brokers. The clients are `User:visitor`, who is no super user:
ACLs allow what they do. Settings are found by the address that a client connects to. A broker without a lock needs none.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.odradek_node import OdradekNode

from odradek import Admin
from odradek.config.files.properties import format_properties
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acls import Acl, AclPattern
from odradek.security.tls.authority import CertificateAuthority, CertificateRequest

MECHANISM: Final = "SCRAM-SHA-512"
ADMIN, VISITOR = "admin", "visitor"
_PASSWORDS: Final = {ADMIN: "made-for-the-tests", VISITOR: "also-for-the-tests"}
_MODULE: Final = "org.apache.kafka.common.security"
_OUR_NAMES: Final = {"ssl.ca.location": "ssl_truststore_location"}
_CLUSTER: Final = "kafka-cluster"
_RESOURCES: Final = {
    AclResourceType.TOPIC: "*",
    AclResourceType.GROUP: "*",
    AclResourceType.TRANSACTIONAL_ID: "*",
    AclResourceType.CLUSTER: _CLUSTER,
}
_locks: dict[str, Lock] = {}
"""The lock of each address that clients connect to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """An authority and a certificate of its own: what a broker needs to lock its door, and a client to open it."""

    directory: Path

    @classmethod
    def made_in(cls, directory: Path) -> Lock:
        now = datetime.datetime.now(datetime.UTC)
        authority = CertificateAuthority.new("interop", now=now)
        request = CertificateRequest(name="broker", hosts=["localhost", "127.0.0.1"])
        lock = cls(directory=directory)
        lock.authority.write_bytes(authority.issued.certificate)
        lock.certificate.touch(mode=0o600)
        lock.certificate.write_bytes(authority.issue(request, now=now).pem)
        lock.java_file.touch(mode=0o600)
        lock.java_file.write_text(format_properties(lock.java_settings()), encoding="utf-8")
        return lock

    @property
    def authority(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.directory / "broker.pem"

    @property
    def java_file(self) -> Path:
        return self.directory / "client.properties"

    def broker_settings(self) -> dict[str, str]:
        users = [f"{MECHANISM}=[name={name},password={text}]" for name, text in _PASSWORDS.items()]
        plain = f'user_{VISITOR}="{_PASSWORDS[VISITOR]}"'
        return {
            "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
            "ssl.keystore.location": str(self.certificate),
            "ssl.truststore.location": str(self.authority),
            "sasl.enabled.mechanisms": f"{MECHANISM},PLAIN",
            "sasl.jaas.config": _jaas(ADMIN),
            "listener.name.plaintext.plain.sasl.jaas.config": f"{_MODULE}.plain.PlainLoginModule required {plain};",
            "odradek.scram.first.users": ";".join(users),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
        }

    def client_settings(self, user: str = VISITOR) -> dict[str, Any]:
        """Returns how a user logs in, by the names that librdkafka and our `from_config` share."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": _PASSWORDS[user],
        }

    def java_settings(self, user: str = VISITOR) -> dict[str, str]:
        """Returns how a user logs in, by Kafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": _jaas(user),
        }

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        return context

    def guard(self, address: str) -> None:
        """Makes clients of `address` log in from now on."""
        _locks[address] = self

    def allow_visitor(self, address: str) -> None:
        """Rules of a broker that is reached at `address`."""
        allowed = [
            Acl(
                AclPattern(kind, name, PatternType.LITERAL),
                f"User:{VISITOR}",
                "*",
                AclOperation.ALL,
                AclPermission.ALLOW,
            )
            for kind, name in _RESOURCES.items()
        ]
        with Admin.from_config({"bootstrap.servers": address, **self.client_settings(ADMIN)}) as admin:
            admin.create_acls(allowed)


class LockedNode(OdradekNode):
    """A broker whose listener has the lock; once it is ready, the visitor has rules."""

    def __init__(self, lock: Lock, *, settings: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(settings={**lock.broker_settings(), **(settings or {})}, **more)
        self._lock = lock

    def wait_until_ready(self) -> None:
        super().wait_until_ready()
        self._lock.guard(self.bootstrap)
        self._lock.allow_visitor(self.bootstrap)


def lock_of(address: str) -> Lock | None:
    return _locks.get(address)


def librdkafka(address: str) -> dict[str, Any]:
    """`bootstrap.servers`, and how to log in there. Our `from_config` understands it, too."""
    lock = lock_of(address)
    return {"bootstrap.servers": address, **(lock.client_settings() if lock else {})}


def kcat_flags(address: str) -> list[str]:
    """`-b`, and how to log in there: by PLAIN, since the librdkafka of Debian's kcat has no SCRAM that Kafka takes."""
    lock = lock_of(address)
    settings = {**lock.client_settings(), "sasl.mechanism": "PLAIN"} if lock else {}
    return ["-b", address, *(part for key, value in settings.items() for part in ("-X", f"{key}={value}"))]


def ours(address: str) -> dict[str, Any]:
    """The address as our client calls it, and how to log in there."""
    settings = librdkafka(address)
    return {_OUR_NAMES.get(key, key.replace(".", "_")): value for key, value in settings.items()}


def kafka_python(address: str) -> dict[str, Any]:
    lock = lock_of(address)
    if lock is None:
        return {"bootstrap_servers": address}
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(lock.authority),
        **_plain_names(),
    }


def aiokafka(address: str) -> dict[str, Any]:
    lock = lock_of(address)
    if lock is None:
        return {"bootstrap_servers": address}
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_SSL",
        "ssl_context": lock.client_context(),
        **_plain_names(),
    }


def java_flags(address: str) -> list[str]:
    """Returns flags for Kafka's own tools: the address, and a file that says how to log in there."""
    lock = lock_of(address)
    return ["--bootstrap-server", address, *(["--command-config", str(lock.java_file)] if lock else [])]


def plain_response() -> bytes:
    """The visitor's message of PLAIN (RFC 4616)."""
    return f"\0{VISITOR}\0{_PASSWORDS[VISITOR]}".encode()


def _plain_names() -> dict[str, str]:
    """Returns the login by the names of settings that both other Python clients have for every mechanism."""
    return {
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": VISITOR,
        "sasl_plain_password": _PASSWORDS[VISITOR],
    }


def _jaas(user: str) -> str:
    return f'{_MODULE}.scram.ScramLoginModule required username="{user}" password="{_PASSWORDS[user]}";'
