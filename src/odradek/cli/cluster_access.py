"""The clients that the command line talks through, with a patience that suits a person who waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.client import Admin

PATIENCE_MS: Final = 10_000
CLIENT_ID: Final = "odradek-cli"


@contextmanager
def open_admin(bootstrap: str, *, patience_ms: int = PATIENCE_MS) -> Iterator[Admin]:
    """An admin client that gives up after `patience_ms`."""
    from odradek.client import Admin

    with Admin(bootstrap, client_id=CLIENT_ID, default_api_timeout_ms=patience_ms) as admin:
        yield admin
