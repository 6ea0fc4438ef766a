"""Security checks of `odradek doctor`: what a configuration leaves open, and when certificates expire."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.cli.doctor.checks import Finding, fail, ok, warn
from odradek.cli.serving.cert import days_left
from odradek.config.broker import BrokerConfig
from odradek.config.listening.listeners import Listener
from odradek.config.sasl import OAUTHBEARER
from odradek.model.errors import ConfigError
from odradek.security.tls.authority import next_list
from odradek.security.tls.listener_tls import ListenerCertificates

_SOON_DAYS: Final = 30.0
_DAY_S: Final = 86_400
_REPLACE: Final = "replace the file: it is taken over at once"
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def check_security(config: BrokerConfig) -> Iterator[Finding]:
    """Yields a line for each listener, and one for the authorizer."""
    for listener in config.network.listeners:
        yield from _check_listener(config, listener)
    has_names = any(
        listener_security.uses_sasl or listener_security.ssl.client_auth != "none"
        for listener_security in config.security.values()
    )
    if config.access.authorizer_class_name:
        yield ok("access", "an authorizer decides what clients may do")
        if config.access.allow_everyone_if_no_acl_found:
            yield warn(
                "access",
                "what no rule is about is open to everyone",
                "set allow.everyone.if.no.acl.found=false",
            )
    elif has_names:
        yield warn(
            "access",
            "clients log in, and all of them may do everything",
            "set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )


def _check_listener(config: BrokerConfig, listener: Listener) -> Iterator[Finding]:
    about = f"security of {listener}"
    security = config.security[listener.name]
    is_local = listener.host in _LOOPBACK
    if security.protocol == "PLAINTEXT" and not is_local:
        yield warn(
            about, "anyone who reaches it may use it, and read what others send", "odradek serve --secure DIR"
        )
    elif security.protocol == "SASL_PLAINTEXT" and not is_local:
        yield warn(about, "logins and data are not encrypted", "use SASL_SSL")
    if OAUTHBEARER in security.mechanisms and security.sasl.oauthbearer_unsecured_enable:
        yield warn(
            about,
            "tokens without a signature count, so clients can claim to be anyone",
            "unset odradek.sasl.oauthbearer.unsecured.enable",
        )
    if not security.uses_tls:
        return
    if security.protocol == "SSL" and security.ssl.client_auth == "none" and not is_local:
        yield warn(
            about,
            "anyone who reaches it may use it: it asks for no certificate",
            "set ssl.client.auth=required, or use SASL_SSL",
        )
    if not security.ssl.endpoint_identification_algorithm:
        yield warn(
            about,
            "this broker does not look which host it talks to",
            "unset ssl.endpoint.identification.algorithm",
        )
    try:
        yield from _check_dates(about, ListenerCertificates(listener.name, security))
    except ConfigError as error:
        yield fail(about, str(error), "the broker would not start")


def _check_dates(about: str, certificates: ListenerCertificates) -> Iterator[Finding]:
    """Checks when certificates expire. Raises ConfigError."""
    left = days_left(certificates.certificate)
    if left < _SOON_DAYS:
        yield _ends(about, "its certificate", left)
    else:
        yield ok(about, f"its certificate is valid for {left:.0f} more days")
    for authority in certificates.authorities:
        left = days_left(authority)
        if left < _SOON_DAYS:
            yield _ends(about, f"the authority {_name_of(authority)}", left)
    if certificates.revoked:
        until = next_list(certificates.revoked)
        if until is not None:
            left = (until - datetime.datetime.now(datetime.UTC)).total_seconds() / _DAY_S
            if left < _SOON_DAYS:
                yield _ends(
                    about, "the list of revoked certificates, after which no certificate counts,", left
                )


def _ends(about: str, what: str, left: float) -> Finding:
    if left <= 0:
        return fail(about, f"{what} expired {-left:.0f} days ago", _REPLACE)
    return warn(about, f"{what} expires in {left:.0f} days", _REPLACE)


def _name_of(certificate: Mapping[str, Any]) -> str:
    return ", ".join(value for part in certificate.get("subject", ()) for _, value in part)
