"""How clients reach the brokers: in plain text; or by TLS and a SCRAM login, as users with exactly the rules that they need."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from odradek.security.tls.authority import CertificateAuthority, CertificateRequest

MECHANISM: Final = "SCRAM-SHA-256"
PROTOCOL: Final = "SASL_SSL"
BROKER: Final = "broker"
"""The brokers' own user, the only super user. It writes the first access rules."""
WRITER, SOURCE_WRITER, COPIER, MEMBER = "writer", "source-writer", "copier", "member"
WATCH, CHECKER, OBSERVER, OWNER, KEEPER = "watch", "checker", "observer", "owner", "keeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files: the certificate of an authority, and one for all brokers, with its key."""

    authority: Path
    broker: Path

    @classmethod
    def made_in(cls, directory: Path, hosts: Sequence[str]) -> Self:
        directory.mkdir(parents=True, exist_ok=True)
        files = cls(authority=directory / "ca.pem", broker=directory / "broker.pem")
        now = datetime.datetime.now(datetime.UTC)
        signer = CertificateAuthority.new("faults", now=now)
        files.authority.write_bytes(signer.issued.certificate)
        files.broker.touch(mode=0o600)
        files.broker.write_bytes(signer.issue(CertificateRequest(name=BROKER, hosts=hosts), now=now).pem)
        return files


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """`address`: what clients call `bootstrap.servers`. `authority`: a file; without one, no TLS and no login."""

    address: str
    authority: Path | None = None

    def of(self, user: str) -> dict[str, Any]:
        """Returns the settings of librdkafka for a user: the addresses of the brokers, and the login."""
        if self.authority is None:
            return {"bootstrap.servers": self.address}
        return {
            "bootstrap.servers": self.address,
            "security.protocol": PROTOCOL,
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password(user),
        }

    def tls_context(self) -> ssl.SSLContext:
        """Returns the context of a client made by hand. It trusts that authority and no other."""
        assert self.authority is not None, "the brokers have no TLS"
        return ssl.create_default_context(cafile=self.authority)


def password(user: str) -> str:
    return f"{user}-secret"
