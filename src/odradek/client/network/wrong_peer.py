"""Recognizes a peer that is not Kafka by the first bytes of its answer."""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from odradek.client.settings.address import Address

_TLS_ALERT: Final = 0x15
_TLS_HANDSHAKE: Final = 0x16


def describe_peer(first_bytes: bytes) -> str | None:
    """Describes the peer that sends these bytes, in words that end "... not Kafka"; None for bytes that may be Kafka's."""
    if first_bytes.startswith(b"HTTP/"):
        return "answers in HTTP, not Kafka"
    if first_bytes.startswith(b"SSH-"):
        return "is an SSH server, not Kafka"
    if len(first_bytes) >= 2 and first_bytes[0] in (_TLS_ALERT, _TLS_HANDSHAKE) and first_bytes[1] == 3:
        return "wants TLS: set security.protocol=SSL, or SASL_SSL with a login"
    if first_bytes.startswith((b"220 ", b"220-", b"-ERR", b"+OK")):
        return "is a server of another kind, not Kafka"
    return None


def closed_while_greeting(address: Address, security_protocol: str = "PLAINTEXT") -> str:
    """Returns the message for a peer that hung up before it answered ApiVersions."""
    return f"{address} closed the connection before answering: is it a listener for security.protocol={security_protocol}?"


def closed_unanswered(address: Address, security_protocol: str) -> str:
    """Returns the message for a peer that answered ApiVersions, and hung up at the first request after it."""
    hint = ""
    if not security_protocol.startswith("SASL"):
        protocol = "SASL_SSL" if security_protocol == "SSL" else "SASL_PLAINTEXT"
        hint = f": does it want a login (security.protocol={protocol})?"
    return f"{address} closed the connection at the first request{hint}"


def connect_problem(address: Address, error: Exception) -> str:
    """Returns one sentence for a connection that could not be made."""
    return f"cannot connect to {address}: {_reason(error)}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not error.errno:
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved"
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return "connection refused, nothing listens there"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
