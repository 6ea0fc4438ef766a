"""Settings of TLS, for all listeners; `listener.name.NAME.ssl...` overrides them for one
(`listener_security.py`)."""

from __future__ import annotations

from typing import Final

from odradek.config.definition import Bounds, any_of, at_least, one_of
from odradek.config.section import (
    HIGH,
    LOW,
    PER_BROKER,
    Boolean,
    Int,
    List,
    Password,
    Section,
    String,
    section,
    setting,
)

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_STORE_TYPES: Final = one_of("PEM", "PKCS12", "JKS")
_HOSTS: Final = Bounds(allowed="https, or nothing", accepts=lambda name: name.lower() in ("https", ""))


@section("ssl.")
class SslConfig(Section):
    """Settings for TLS: certificates, keys, versions and cipher suites."""

    # fmt: off
    keystore_location: String | None = setting(default=None, importance=HIGH, dynamic=PER_BROKER, meaning=
        "The file with this broker's private key and its chain of certificates: PEM, PKCS#12 or JKS. Not readable by all "
        "users. A changed file is taken over while the broker runs.")
    keystore_password: Password | None = setting(default=None, importance=HIGH, dynamic=PER_BROKER, meaning=
        "The password of a PKCS#12 or JKS file, or of the encrypted key in a PEM file.")
    keystore_type: String = setting(default="JKS", valid=_STORE_TYPES, dynamic=PER_BROKER, meaning=
        "The format of ssl.keystore.location. Not set: the file itself says it.")
    keystore_key: Password | None = setting(default=None, importance=HIGH, dynamic=PER_BROKER, meaning=
        "The private key itself, as PEM, in place of a file.")
    keystore_certificate_chain: Password | None = setting(default=None, importance=HIGH, dynamic=PER_BROKER, meaning=
        "The chain of certificates itself, as PEM, with ssl.keystore.key.")
    key_password: Password | None = setting(default=None, importance=HIGH, dynamic=PER_BROKER, meaning=
        "The password of the private key. Not set: the keystore's password.")
    truststore_location: String | None = setting(default=None, importance=HIGH, dynamic=PER_BROKER, meaning=
        "The file with the authorities whose certificates are trusted: PEM, PKCS#12 or JKS.")
    truststore_password: Password | None = setting(default=None, importance=HIGH, dynamic=PER_BROKER, meaning=
        "The password of a PKCS#12 or JKS file of authorities.")
    truststore_type: String = setting(default="JKS", valid=_STORE_TYPES, dynamic=PER_BROKER, meaning=
        "The format of ssl.truststore.location. Not set: the file itself says it.")
    truststore_certificates: Password | None = setting(default=None, importance=HIGH, dynamic=PER_BROKER, meaning=
        "The trusted authorities themselves, as PEM, in place of a file.")
    client_auth: String = setting(default="none", valid=one_of("none", "requested", "required"), dynamic=PER_BROKER, meaning=
        "Whether clients show certificates: none, requested (those that have one), required.")
    principal_mapping_rules: String = setting(default="DEFAULT", meaning=
        "How the name in a client's certificate becomes its principal: RULE:PATTERN/REPLACEMENT/[L|U] or DEFAULT, separated by "
        "commas; the first that fits counts.")
    enabled_protocols: List = setting(default=TLS_VERSIONS, valid=any_of(*TLS_VERSIONS), dynamic=PER_BROKER, meaning=
        "The versions of TLS that are spoken.")
    cipher_suites: List = setting(default=(), dynamic=PER_BROKER, importance=LOW, meaning=
        "The cipher suites that may be used, by Java's or OpenSSL's names. Not set: OpenSSL's choice. TLS 1.3 suites are "
        "allowed only all together.")
    endpoint_identification_algorithm: String = setting(default="https", valid=_HOSTS, dynamic=PER_BROKER, importance=LOW,
        meaning=
        "https: the certificate of another broker must name the host that was connected to; empty: any name will do.")
    allow_dn_changes: Boolean = setting(default=False, importance=LOW, meaning=
        "Whether a certificate that is replaced while the broker runs may have another subject.")
    allow_san_changes: Boolean = setting(default=False, importance=LOW, meaning=
        "Whether it may lack one of the alternative names that the one before had.")
    crl_location: String | None = setting("odradek.ssl.crl.location", default=None, importance=LOW, meaning=
        "Odradek's own: a PEM file of revoked certificates (CRL) of the authorities. With it, a certificate of an authority "
        "without a list is refused.")
    handshake_timeout_ms: Int = setting("odradek.ssl.handshake.timeout.ms", default=10_000, valid=at_least(1),
        importance=LOW, meaning=
        "Odradek's own: how long the handshake of a connection may take.")
    secrets_others_may_read: Boolean = setting("odradek.secret.files.readable.by.others", default=False, importance=LOW,
        meaning=
        "Odradek's own: whether files with private keys or passwords may be readable by every user of the machine.")
    # fmt: on
