"""Of `odradek doctor`: what a configuration leaves open, and which certificate expires when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.cli.cert import days_left
from odradek.cli.doctor.checks import Finding, fail, ok, warn
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import Listener
from odradek.model.errors import ConfigError
from odradek.security.tls.listener_tls import ListenerCertificates

_SOON_DAYS: Final = 30.0
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def check_security(config: BrokerConfig) -> Iterator[Finding]:
    """A line for each listener, and one for the authorizer."""
    for listener in config.network.listeners:
        yield from _check_listener(config, listener)
    has_names = any(
        listener_security.uses_sasl or listener_security.ssl.client_auth != "none"
        for listener_security in config.security.values()
    )
    if config.access.authorizer_class_name:
        yield ok("access", "an authorizer decides what clients may do")
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
    if not security.uses_tls:
        return
    try:
        certificate = ListenerCertificates(listener.name, security).certificate
    except ConfigError as error:
        yield fail(about, str(error), "the broker would not start")
        return
    left = days_left(certificate)
    if left <= 0:
        yield fail(
            about,
            f"its certificate expired {-left:.0f} days ago",
            "replace the file: it is taken over at once",
        )
    elif left < _SOON_DAYS:
        yield warn(
            about, f"its certificate expires in {left:.0f} days", "replace the file: it is taken over at once"
        )
    else:
        yield ok(about, f"its certificate is valid for {left:.0f} more days")
