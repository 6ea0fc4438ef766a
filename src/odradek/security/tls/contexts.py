"""OpenSSL contexts for listeners and for outgoing connections, and clear words for OpenSSL's errors.

TLS 1.2 and 1.3; no renegotiation, no compression, no early data, no session tickets (clients of Kafka do not resume sessions,
and two tickets a handshake are bytes for nothing).
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.config.tls import SslConfig
from odradek.model.errors import ConfigError
from odradek.security.tls.stores import (
    KeyMaterial,
    authorities_from_pem,
    key_from_pem,
    load_authorities,
    load_key,
)

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\s*")
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_OF_1_3: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """Keys and certificates of one side, read."""

    key: KeyMaterial | None = None
    authorities: bytes = b""
    revoked: bytes = field(default=b"", repr=False)

    def certificate(self) -> Mapping[str, Any]:
        """Returns the leaf of the own chain, as `ssl` shows certificates; empty without one."""
        if self.key is None:
            return {}
        with _as_file(self.key.chain) as path:
            decoded: Mapping[str, object] = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
            return decoded

    def authorities_around(self) -> Sequence[Mapping[str, object]]:
        """Returns the authorities in the own chain, and the trusted ones, in the form of `ssl`'s certificates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for pem in (b"" if self.key is None else self.key.chain, self.authorities):
            if pem:
                context.load_verify_locations(cadata=pem.decode("ascii"))
        return [certificate for certificate in context.get_ca_certs() if isinstance(certificate, dict)]


def certificate_in(content: bytes, where: str) -> Mapping[str, Any]:
    """Returns the first certificate of a PEM file, as `ssl` shows it. ConfigError where there is none."""
    certificate = _CERTIFICATE.search(content)
    if certificate is None:
        raise ConfigError(f"{where} holds no certificate in PEM")
    try:
        return TlsMaterial(key=KeyMaterial(key=b"", chain=certificate[0])).certificate()
    except ssl.SSLError:
        raise ConfigError(f"{where} holds no certificate that can be read") from None


def read_material(ssl_config: SslConfig, *, given: frozenset[str], prefix: str = "") -> TlsMaterial:
    """Reads the files that the settings name. Raises ConfigError; `given` are the set keys, named with `prefix` in errors."""
    return TlsMaterial(
        key=_key(ssl_config, given, prefix),
        authorities=_authorities(ssl_config, given, prefix),
        revoked=_revoked(ssl_config, prefix),
    )


def _key(config: SslConfig, given: frozenset[str], prefix: str) -> KeyMaterial | None:
    if config.keystore_key is not None:
        chain = (config.keystore_certificate_chain or "").encode()
        return key_from_pem(
            f"{prefix}ssl.keystore.key", config.keystore_key.encode(), config.key_password, chain=chain
        )
    if config.keystore_location is None:
        return None
    return load_key(
        f"{prefix}ssl.keystore.location",
        config.keystore_location,
        wanted_type=config.keystore_type if "ssl.keystore.type" in given else None,
        store_password=config.keystore_password,
        key_password=config.key_password,
        others_may_read=config.secrets_others_may_read,
    )


def _authorities(config: SslConfig, given: frozenset[str], prefix: str) -> bytes:
    if config.truststore_certificates is not None:
        return authorities_from_pem(
            f"{prefix}ssl.truststore.certificates", config.truststore_certificates.encode()
        )
    if config.truststore_location is None:
        return b""
    return load_authorities(
        f"{prefix}ssl.truststore.location",
        config.truststore_location,
        wanted_type=config.truststore_type if "ssl.truststore.type" in given else None,
        password=config.truststore_password,
    )


def _revoked(config: SslConfig, prefix: str) -> bytes:
    if config.crl_location is None:
        return b""
    try:
        with open(config.crl_location, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(
            f"{prefix}odradek.ssl.crl.location={config.crl_location!r} cannot be read: {error.strerror}"
        ) from None


def server_context(config: SslConfig, material: TlsMaterial, *, prefix: str = "") -> ssl.SSLContext:
    """Returns the context of a listener. Raises ConfigError for a key that does not fit its certificate, a wrong password, or
    unknown cipher suites."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_TICKET
    context.num_tickets = 0
    _set_up(context, config, material, prefix)
    if config.client_auth != "none" and not material.authorities:
        raise ConfigError(
            f"{prefix}ssl.client.auth={config.client_auth} needs the authorities of clients' certificates: set "
            "ssl.truststore.location"
        )
    context.verify_mode = _CLIENT_AUTH[config.client_auth]
    return context


def client_context(config: SslConfig, material: TlsMaterial, *, prefix: str = "") -> ssl.SSLContext:
    """Returns the context for outgoing connections. Without authorities of its own it trusts the system's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.endpoint_identification_algorithm.lower() == "https"
    context.verify_mode = ssl.CERT_REQUIRED
    _set_up(context, config, material, prefix)
    if not material.authorities:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _set_up(context: ssl.SSLContext, config: SslConfig, material: TlsMaterial, prefix: str) -> None:
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    versions = [_VERSIONS[name] for name in config.enabled_protocols]
    if not versions:
        raise ConfigError(f"{prefix}ssl.enabled.protocols is empty: expected {', '.join(_VERSIONS)}")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if config.cipher_suites:
        _choose_ciphers(context, config.cipher_suites, prefix)
    if material.key is not None:
        _load_key(context, material.key, prefix)
    if material.authorities:
        try:
            context.load_verify_locations(cadata=material.authorities.decode("ascii", "replace"))
        except ssl.SSLError as error:
            raise ConfigError(
                f"{prefix}ssl.truststore: a certificate cannot be read: {error.reason}"
            ) from None
    if material.revoked:
        try:
            with _as_file(material.revoked) as path:
                context.load_verify_locations(cafile=path)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{prefix}odradek.ssl.crl.location: no list of revoked certificates can be read: {error.reason}"
            ) from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


_KEYSTORE_PROBLEMS: Final = {
    "KEY_VALUES_MISMATCH": "the private key cannot be used: it is not the one of the certificate",
    "CA_MD_TOO_WEAK": "a certificate cannot be used: it or one of its chain is signed with SHA-1 or another weak digest;"
    " have it issued again with SHA-256 or stronger",
    "EE_KEY_TOO_SMALL": "the certificate cannot be used: its key is too small; make one of 2048 bits or more (RSA), or of"
    " 256 (EC)",
    "CA_KEY_TOO_SMALL": "the certificate cannot be used: the key of an authority in its chain is too small; have it issued"
    " by another one",
    **dict.fromkeys(
        ("BAD_DECRYPT", "BAD_PASSWORD_READ", "EMPTY_PASSWORD", None),
        "the private key cannot be used: its password (ssl.key.password) is wrong or missing",
    ),
}


def keystore_problem(error: ssl.SSLError) -> str:
    """Returns why OpenSSL refuses a key and its certificates, and a remedy."""
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return _KEYSTORE_PROBLEMS.get(error.reason) or f"its key or a certificate cannot be used: {reason}"


def _load_key(context: ssl.SSLContext, key: KeyMaterial, prefix: str) -> None:
    try:
        with _as_file(key.key + key.chain) as path:
            # Without a password a function, or OpenSSL asks the terminal.
            context.load_cert_chain(path, password=key.password or (lambda: ""))
    except ssl.SSLError as error:
        raise ConfigError(f"{prefix}ssl.keystore: {keystore_problem(error)}") from None
    except ValueError:
        raise ConfigError(f"{prefix}ssl.key.password is too long") from None


def _choose_ciphers(context: ssl.SSLContext, names: tuple[str, ...], prefix: str) -> None:
    newer = [name for name in names if name in _SUITES_OF_1_3]
    older = [_openssl_name(name) for name in names if name not in _SUITES_OF_1_3]
    key = f"{prefix}ssl.cipher.suites"
    if newer and set(newer) != _SUITES_OF_1_3:
        raise ConfigError(
            f"{key}={','.join(newer)} is not allowed: Python cannot choose among the suites of TLS 1.3: name all three, or none"
        )
    if not newer:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise ConfigError(f"{key}={','.join(names)} is not allowed: OpenSSL knows none of them") from None


def _openssl_name(name: str) -> str:
    """Returns OpenSSL's name of a cipher suite: `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384` is `ECDHE-RSA-AES256-GCM-SHA384`."""
    if not name.startswith("TLS_"):
        return name
    plain = name.removeprefix("TLS_").replace("_WITH_", "_").replace("_", "-").replace("-CBC-", "-")
    for bits in ("128", "256"):
        plain = plain.replace(f"AES-{bits}", f"AES{bits}")
    if "CHACHA20-POLY1305" in plain:
        plain = plain.removesuffix("-SHA256")
    return plain.removeprefix("RSA-") if plain.startswith("RSA-AES") else plain


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """OpenSSL takes some things from files only. In memory where the system can; else one that no other user may read."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("odradek-tls", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="odradek-") as file:  # 0600
        file.write(content)
        file.flush()
        yield file.name


def names_in(certificate: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Returns the alternative names of a certificate."""
    return frozenset((kind, name) for kind, name in certificate.get("subjectAltName", ()))


_VERIFY: Final = {
    9: "its certificate is not valid yet: is the clock of one of the machines wrong?",
    10: "its certificate has expired",
    18: "its certificate is signed by itself, and not among the trusted ones (ssl.truststore.location)",
    19: "an authority that is not trusted signed its certificate (ssl.truststore.location)",
    20: "an authority that is not trusted signed its certificate (ssl.truststore.location)",
    21: "an authority that is not trusted signed its certificate (ssl.truststore.location)",
    23: "its certificate was revoked",
    26: "its certificate is not meant for this purpose",
}
_HOSTNAME_MISMATCH: Final = (62, 64)


def explain_tls(code: str, verify_code: int | None, message: str, host: str = "") -> str:
    """Explains a failure in words for people: `code` and `verify_code` are OpenSSL's."""
    if verify_code in _HOSTNAME_MISMATCH:
        return f"its certificate is for another host than {host} (ssl.endpoint.identification.algorithm)"
    if verify_code is not None:
        return _VERIFY.get(verify_code, f"its certificate is not accepted: {message}")
    if code in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"):
        return "it does not speak TLS: is security.protocol right?"
    if "UNKNOWN_CA" in code:
        return "the other side does not trust the authority of the certificate that it was shown"
    if "CERTIFICATE_REQUIRED" in code or code == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "a client's certificate is required (ssl.keystore.location), and none was shown"
    if "CERTIFICATE_EXPIRED" in code:
        return "the other side says that the certificate it was shown has expired"
    if "BAD_CERTIFICATE" in code or "CERTIFICATE_UNKNOWN" in code or "UNSUPPORTED_CERTIFICATE" in code:
        return "the other side does not accept the certificate that it was shown"
    if "CERTIFICATE_REVOKED" in code:
        return "the other side says that the certificate it was shown was revoked"
    if "PROTOCOL_VERSION" in code or code in ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"):
        return "the two sides have no version of TLS in common (ssl.enabled.protocols)"
    if code in ("NO_SHARED_CIPHER", "NO_CIPHERS_AVAILABLE") or "HANDSHAKE_FAILURE" in code:
        return "the two sides have no cipher suite in common (ssl.cipher.suites), or no certificate fits them"
    return message
