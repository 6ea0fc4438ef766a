"""The TLS of one listener while the broker runs: certificates that are replaced, by a changed file or by a setting.

A new certificate is taken over for new connections; those that are there go on. It must be of the same subject, and name the
hosts that the one before named, unless the settings allow otherwise: a broker that takes over another's certificate by mistake
would be one that no client believes. What cannot be taken over changes nothing, and is logged once.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.config.listener_security import ListenerSecurity
from odradek.model.errors import ConfigError
from odradek.security.tls.contexts import (
    TlsMaterial,
    client_context,
    explain_tls,
    names_in,
    read_material,
    server_context,
)
from odradek.security.tls.principal_mapping import parse_rules, principal_of
from odradek.telemetry import events

_log = events.get("net")
Signature = tuple[tuple[str, int, int, int], ...]


class ListenerCertificates:
    """A `ListenerTls`. Making one reads the files; ConfigError."""

    def __init__(self, name: str, security: ListenerSecurity) -> None:
        self._name: Final = name
        self._security = security
        self._seen = _signature(security)
        self._material = read_material(security.ssl, given=security.given)
        self._server = server_context(security.ssl, self._material)
        self._client: ssl.SSLContext | None = None
        self._rules = parse_rules(security.ssl.principal_mapping_rules)

    @property
    def context(self) -> ssl.SSLContext:
        return self._server

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context for connections of this broker to the listeners of the same name on other brokers."""
        if self._client is None:
            self._client = client_context(self._security.ssl, self._material)
        return self._client

    @property
    def handshake_s(self) -> float:
        return self._security.ssl.handshake_timeout_ms / 1000

    @property
    def certificate(self) -> Mapping[str, Any]:
        """The broker's own certificate, as `ssl` shows certificates."""
        return self._material.certificate()

    @property
    def authorities(self) -> Sequence[Mapping[str, object]]:
        """The authorities of the own certificate, of clients and of other brokers."""
        return self._material.authorities_around()

    @property
    def revoked(self) -> bytes:
        """The list of revoked certificates, as PEM; empty without one."""
        return self._material.revoked

    def principal_of(self, certificate: Mapping[str, object] | None) -> str | None:
        return principal_of(certificate, self._rules)

    def explain(self, code: str, verify_code: int | None, message: str) -> str:
        return explain_tls(code, verify_code, message)

    def reload_if_changed(self) -> bool:
        """Look at the files. Whether anything was taken over."""
        signature = _signature(self._security)
        if signature == self._seen:
            return False
        self._seen = signature
        return self._try(self._security)

    def reconfigure(self, security: ListenerSecurity) -> bool:
        """Take over other settings, if they are others. Whether anything was taken over."""
        if security == self._security:
            return False
        self._seen = _signature(security)
        return self._try(security)

    def _try(self, security: ListenerSecurity) -> bool:
        try:
            self._install(security)
        except (ConfigError, OSError) as error:
            _log.error("certificate_not_replaced", listener=self._name, reason=str(error))
            return False
        _log.info("certificate_replaced", listener=self._name, expires=self.certificate.get("notAfter", ""))
        return True

    def _install(self, security: ListenerSecurity) -> None:
        material = read_material(security.ssl, given=security.given)
        context = server_context(security.ssl, material)
        self._check_names(security, material)
        self._security, self._material, self._server, self._client = security, material, context, None

    def _check_names(self, security: ListenerSecurity, material: TlsMaterial) -> None:
        before, after = self._material.certificate(), material.certificate()
        if not security.ssl.allow_dn_changes and before.get("subject") != after.get("subject"):
            raise ConfigError("the new certificate has another subject, and ssl.allow.dn.changes=false")
        missing = names_in(before) - names_in(after)
        if missing and not security.ssl.allow_san_changes:
            names = ", ".join(sorted(name for _, name in missing))
            raise ConfigError(f"the new certificate is not for {names}, and ssl.allow.san.changes=false")


def _signature(security: ListenerSecurity) -> Signature:
    """Returns values by which a changed file differs from the one that was read."""
    paths = (
        security.ssl.keystore_location,
        security.ssl.truststore_location,
        security.ssl.crl_location,
    )
    return tuple(_of_file(path) for path in paths if path)


def _of_file(path: str) -> tuple[str, int, int, int]:
    try:
        status = os.stat(path)
    except OSError:  # it is being replaced: the next look
        return (path, 0, 0, 0)
    return (path, status.st_mtime_ns, status.st_size, status.st_ino)
