"""Tokens that give access to the pages of the metrics listener. Prometheus sends one as `authorization` or as `basic_auth`.

The file has a token on each line, so that a new one can be added before the old one is removed. It is read again when it
changed.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import Callable
from typing import Final

from odradek.config.files.secret_files import read_secret_file
from odradek.model.errors import ConfigError
from odradek.telemetry import events

TOKEN_FILE: Final = "odradek.metrics.token.file"
TOKEN_CHARACTERS_MIN: Final = 16
_LOOK_SECONDS: Final = 1.0
_log = events.caused_by_peers("broker")


class PageTokens:
    """The tokens of a file. Used on the listener's thread."""

    def __init__(self, path: str, *, others_may_read: bool, now: Callable[[], float]) -> None:
        """Reads the file. ConfigError for one that cannot be used."""
        self._path = path
        self._others_may_read = others_may_read
        self._now = now
        self._signature = self._seen()
        self._looked_at = now()
        self._tokens = self._read()

    def allow(self, authorization: str) -> bool:
        """Returns whether the value of an Authorization header has one of the tokens."""
        self._refresh()
        shown = _shown_token(authorization)
        matches = [hmac.compare_digest(shown, token) for token in self._tokens]  # all: constant time
        return any(matches)

    def _refresh(self) -> None:
        if self._now() - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = self._now()
        signature = self._seen()
        if signature == self._signature:
            return
        self._signature = signature
        try:
            self._tokens = self._read()
        except (ConfigError, OSError) as error:
            _log.error("metrics_tokens_not_replaced", reason=str(error))
        else:
            _log.info("metrics_tokens_replaced", count=len(self._tokens))

    def _seen(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> list[bytes]:
        content = read_secret_file(TOKEN_FILE, self._path, others_may_read=self._others_may_read)
        tokens = [line.strip() for line in content.splitlines() if line.strip()]
        if not tokens or any(len(token) < TOKEN_CHARACTERS_MIN for token in tokens):
            raise ConfigError(
                f"{TOKEN_FILE}={self._path!r} needs a token on each line, of {TOKEN_CHARACTERS_MIN} characters at least"
            )
        return tokens


def _shown_token(authorization: str) -> bytes:
    """Returns the token of `Bearer TOKEN`, or the password of `Basic ...`, whatever the name; empty for anything else."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1", "replace")
    if scheme.lower() != "basic":
        return b""
    try:
        _, _, password = base64.b64decode(value.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return b""
    return password
