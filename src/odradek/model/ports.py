"""The numbers of TCP ports."""

from __future__ import annotations

from typing import Final

PORT_MAX: Final = 65535


def check_port(port: int) -> None:
    """Raises OverflowError for a number that is no port, as asyncio does. uvloop takes it modulo 65536, and would connect to
    what listens there."""
    if not 0 <= port <= PORT_MAX:
        raise OverflowError(f"port must be 0-{PORT_MAX}.")
