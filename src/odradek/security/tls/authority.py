"""A certificate authority of one's own, for `odradek serve --secure`, `odradek cert` and tests. Needs `cryptography`.

Keys are on the curve P-256: every client of Kafka speaks it, and a handshake costs a third of one with RSA.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.types import (
        CertificateIssuerPublicKeyTypes,
        PrivateKeyTypes,
    )
    from cryptography.x509 import oid
else:
    x509 = lazy("cryptography.x509")
    oid = lazy("cryptography.x509.oid")
    hashes = lazy("cryptography.hazmat.primitives.hashes")
    serialization = lazy("cryptography.hazmat.primitives.serialization")
    ec = lazy("cryptography.hazmat.primitives.asymmetric.ec")

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 397
"""The longest validity that browsers accept, and a good habit elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCertificate:
    """A key and its certificate, as PEM."""

    key: bytes = field(repr=False)
    certificate: bytes

    @property
    def pem(self) -> bytes:
        """Both, as Kafka has them in one file."""
        return self.key + self.certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRequest:
    """The subject of a certificate. `hosts`: names and addresses of a server."""

    name: str
    hosts: Sequence[str] = ()
    is_server: bool = True
    is_client: bool = True
    days: float = CERTIFICATE_DAYS
    starts_days_ago: float = 1


class CertificateAuthority:
    """Signs certificates with its key."""

    def __init__(self, issued: IssuedCertificate) -> None:
        """Raises ConfigError for a key or a certificate that cannot be read."""
        self.issued: Final = issued
        try:
            self._key: Any = serialization.load_pem_private_key(issued.key, None)
            self._certificate = x509.load_pem_x509_certificate(issued.certificate)
        except ImportError:
            raise _absent() from None
        except (ValueError, TypeError):
            raise ConfigError("the authority's key or certificate cannot be read") from None

    @classmethod
    def new(cls, name: str, *, now: datetime.datetime, days: float = AUTHORITY_DAYS) -> CertificateAuthority:
        """Returns a new one, which signs itself."""
        try:
            key = ec.generate_private_key(ec.SECP256R1())
        except ImportError:
            raise _absent() from None
        subject = _name(name)
        builder = (
            _builder(subject, subject, key.public_key(), now, days, 1)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        certificate = builder.sign(key, hashes.SHA256())
        return cls(_issued(key, certificate))

    def issue(self, request: CertificateRequest, *, now: datetime.datetime) -> IssuedCertificate:
        """Returns a new key with its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = []
        if request.is_server:
            usages.append(oid.ExtendedKeyUsageOID.SERVER_AUTH)
        if request.is_client:
            usages.append(oid.ExtendedKeyUsageOID.CLIENT_AUTH)
        builder = (
            _builder(
                _name(request.name),
                self._certificate.subject,
                key.public_key(),
                now,
                request.days,
                request.starts_days_ago,
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if request.hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in request.hosts]), critical=False
            )
        return _issued(key, builder.sign(self._key, hashes.SHA256()))

    def revoke(self, certificates: Sequence[bytes], *, now: datetime.datetime) -> bytes:
        """Returns a list of revoked certificates, as PEM."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(now - datetime.timedelta(days=1))
            .next_update(now + datetime.timedelta(days=30))
        )
        for pem in certificates:
            serial = x509.load_pem_x509_certificate(pem).serial_number
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def next_list(revoked: bytes) -> datetime.datetime | None:
    """Returns the time until which a list of revoked certificates (PEM) is valid; None if it has none. Raises ConfigError."""
    try:
        until: datetime.datetime | None = x509.load_pem_x509_crl(revoked).next_update_utc
    except ImportError:
        raise ConfigError(
            "reading a list of revoked certificates needs pip install 'odradek[security]'"
        ) from None
    except ValueError:
        raise ConfigError("the list of revoked certificates cannot be read") from None
    return until


def _absent() -> ConfigError:
    return ConfigError("making certificates needs pip install 'odradek[security]'")


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: CertificateIssuerPublicKeyTypes,
    now: datetime.datetime,
    days: float,
    starts_days_ago: float,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=starts_days_ago))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.Name:
    """Parses `CN=alice,OU=people`, the last first as in RFC 2253; a plain name is the common name."""
    known = {
        "CN": oid.NameOID.COMMON_NAME,
        "OU": oid.NameOID.ORGANIZATIONAL_UNIT_NAME,
        "O": oid.NameOID.ORGANIZATION_NAME,
        "L": oid.NameOID.LOCALITY_NAME,
        "ST": oid.NameOID.STATE_OR_PROVINCE_NAME,
        "C": oid.NameOID.COUNTRY_NAME,
    }
    parts = name.split(",") if "=" in name else [f"CN={name}"]
    attributes = []
    for part in reversed(parts):
        short, _, value = part.strip().partition("=")
        if short.upper() not in known or not value:
            raise ConfigError(f"{name!r} is no name for a certificate: expected NAME, or CN=NAME,OU=UNIT")
        attributes.append(x509.NameAttribute(known[short.upper()], value))
    return x509.Name(attributes)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _issued(key: PrivateKeyTypes, certificate: x509.Certificate) -> IssuedCertificate:
    return IssuedCertificate(
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
    )
