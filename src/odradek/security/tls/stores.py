"""Keystores and truststores: PEM, PKCS#12 and JKS, as files or inline, as PEM in the end.

PEM needs nothing but Python. PKCS#12 needs `cryptography`, JKS needs `pyjks`: both are in
`odradek[security]`. The first bytes of a file show its type, so `ssl.keystore.type` is needed only to check
it. Errors name the file and never its content.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.config.files.secret_files import read_file, read_secret_file
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import jks
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization import pkcs12
else:
    jks = lazy("jks")
    exceptions = lazy("cryptography.exceptions")
    serialization = lazy("cryptography.hazmat.primitives.serialization")
    pkcs12 = lazy("cryptography.hazmat.primitives.serialization.pkcs12")

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_SEQUENCE: Final = b"\x30"
_PRIVATE_KEY: Final = re.compile(
    rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.*?-----END (?:[A-Z]+ )*PRIVATE KEY-----", re.DOTALL
)
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMaterial:
    """A private key and its chain, the leaf first, as PEM. `password`: of the key, where that is encrypted."""

    key: bytes = field(repr=False)
    chain: bytes
    password: str | None = field(default=None, repr=False)


def key_from_pem(
    key: str, content: bytes, password: str | None, *, chain: bytes | None = None
) -> KeyMaterial:
    """Reads a private key and its chain from PEM. `chain`: where that is not with the key."""
    private = _PRIVATE_KEY.search(content)
    if private is None:
        raise ConfigError(f"{key} holds no private key in PEM (-----BEGIN PRIVATE KEY-----)")
    certificates = _CERTIFICATE.findall(content if chain is None else chain)
    if not certificates:
        where = key if chain is None else key.replace("keystore.key", "keystore.certificate.chain")
        raise ConfigError(f"{where} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    return KeyMaterial(key=private[0] + b"\n", chain=b"\n".join(certificates) + b"\n", password=password)


def load_key(
    key: str,
    path: str,
    *,
    wanted_type: str | None,
    store_password: str | None,
    key_password: str | None,
    others_may_read: bool,
) -> KeyMaterial:
    """Reads a key and its certificates from the file at `path`; `key` is the setting that names it, for errors."""
    content = read_secret_file(key, path, others_may_read=others_may_read)
    kind = _kind(key, path, content, wanted_type)
    if kind == PEM:
        return key_from_pem(f"{key}={path!r}", content, key_password or store_password)
    if kind == PKCS12:
        return _key_from_pkcs12(key, path, content, store_password)
    return _key_from_jks(key, path, content, store_password, key_password)


def load_authorities(key: str, path: str, *, wanted_type: str | None, password: str | None) -> bytes:
    """Returns the certificates in the file at `path`, as PEM."""
    content = read_file(key, path)
    kind = _kind(key, path, content, wanted_type)
    if kind == PEM:
        return authorities_from_pem(f"{key}={path!r}", content)
    if kind == PKCS12:
        _, leaf, others = _open_pkcs12(key, path, content, password)
        certificates = [*([leaf] if leaf is not None else []), *others]
        pem = b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)
    else:
        store = _open_jks(key, path, content, password)
        pem = b"".join(_pem_certificate(entry.cert) for entry in store.certs.values())
    if not pem:
        raise ConfigError(f"{key}={path!r} holds no certificate")
    return pem


def authorities_from_pem(what: str, content: bytes) -> bytes:
    certificates = _CERTIFICATE.findall(content)
    if not certificates:
        raise ConfigError(f"{what} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    return b"\n".join(certificates) + b"\n"


def _kind(key: str, path: str, content: bytes, wanted_type: str | None) -> str:
    if content.startswith(_JKS_MAGIC):
        kind = JKS
    elif content.startswith(_JCEKS_MAGIC):
        raise ConfigError(f"{key}={path!r} is a JCEKS store, which is not supported: convert it to PKCS12")
    elif content.startswith(_SEQUENCE):
        kind = PKCS12
    elif b"-----BEGIN " in content:
        kind = PEM
    else:
        raise ConfigError(f"{key}={path!r} is neither PEM, nor PKCS#12, nor JKS")
    # Java reads PKCS#12 where JKS is asked for.
    if wanted_type is not None and kind != wanted_type and not (wanted_type == JKS and kind == PKCS12):
        raise ConfigError(f"{key}={path!r} is {kind}, but {key.replace('location', 'type')}={wanted_type}")
    return kind


# -- PKCS#12


def _open_pkcs12(
    key: str, path: str, content: bytes, password: str | None
) -> tuple[PrivateKeyTypes | None, x509.Certificate | None, list[x509.Certificate]]:
    try:
        secret = None if password is None else password.encode()
        return pkcs12.load_key_and_certificates(content, secret)
    except ImportError:
        raise ConfigError(f"{key}={path!r}: PKCS#12 needs pip install 'odradek[security]'") from None
    except (ValueError, exceptions.UnsupportedAlgorithm):
        raise ConfigError(
            f"{key}={path!r} cannot be opened: its password ({key.replace('location', 'password')}) is wrong, it is damaged,"
            " or it is protected by an algorithm that is not supported (`openssl pkcs12 -info -noout -in FILE` names it)"
        ) from None


def _key_from_pkcs12(key: str, path: str, content: bytes, password: str | None) -> KeyMaterial:
    private, leaf, others = _open_pkcs12(key, path, content, password)
    if private is None or leaf is None:
        raise ConfigError(f"{key}={path!r} holds no private key with a certificate")
    chain = b"".join(
        certificate.public_bytes(serialization.Encoding.PEM) for certificate in _in_order(leaf, others)
    )
    encoded = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyMaterial(key=encoded, chain=chain)


def _in_order(leaf: x509.Certificate, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """Returns the leaf, then the one that signed it, and so on."""
    chain, rest = [leaf], list(others)
    while rest:
        signer = next((other for other in rest if other.subject == chain[-1].issuer), None)
        if signer is None:
            break
        rest.remove(signer)
        chain.append(signer)
    return chain


# -- JKS


def _open_jks(key: str, path: str, content: bytes, password: str | None) -> jks.KeyStore:
    try:
        return jks.KeyStore.loads(content, password or "")
    except ImportError:
        raise ConfigError(
            f"{key}={path!r}: JKS needs pip install 'odradek[security]' and pyjks, or convert it: keytool -importkeystore "
            "-deststoretype PKCS12"
        ) from None
    except Exception as error:  # noqa: BLE001 - pyjks raises whatever a damaged file leads it to
        raise ConfigError(
            f"{key}={path!r} cannot be opened: its password ({key.replace('location', 'password')}) is wrong, or it "
            f"is damaged ({type(error).__name__})"
        ) from None


def _key_from_jks(
    key: str, path: str, content: bytes, store_password: str | None, key_password: str | None
) -> KeyMaterial:
    store = _open_jks(key, path, content, store_password)
    entry: jks.PrivateKeyEntry | None = next(iter(store.private_keys.values()), None)
    if entry is None:
        raise ConfigError(f"{key}={path!r} holds no private key with a certificate")
    if not entry.is_decrypted():
        try:
            entry.decrypt(key_password or store_password or "")
        except Exception:  # noqa: BLE001 - as above
            raise ConfigError(f"{key}={path!r}: ssl.key.password is wrong or missing") from None
    chain = b"".join(_pem_certificate(certificate) for _, certificate in entry.cert_chain)
    return KeyMaterial(key=_pem("PRIVATE KEY", entry.pkey_pkcs8), chain=chain)


def _pem_certificate(der: bytes) -> bytes:
    return _pem("CERTIFICATE", der)


def _pem(label: str, der: bytes) -> bytes:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n".encode()
