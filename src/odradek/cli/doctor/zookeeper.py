"""The checks of `odradek doctor` on ZooKeeper. They only read, and create nothing there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.cli.doctor.checks import Finding, fail, ok
from odradek.config.broker import BrokerConfig
from odradek.config.zookeeper import parse_connect
from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.registry import zookeeper_session
else:
    zookeeper_session = lazy("odradek.registry.zookeeper_session")

_PATIENCE_MS: Final = 5_000


def check_zookeeper(config: BrokerConfig) -> Iterator[Finding]:
    """Checks whether the broker gets in, and who is there."""
    if config.zookeeper.connect is None:
        return
    about = f"zookeeper {config.zookeeper.connect}"
    try:
        yield ok(about, asyncio.run(_probe(config)))
    except OdradekError as error:
        seen, _, advice = str(error).rpartition(": ")
        yield fail(about, seen or advice, advice if seen else "")


async def _probe(config: BrokerConfig) -> str:
    chroot = parse_connect(config.zookeeper.connect or "").chroot
    session = zookeeper_session.Session(config.zookeeper, watched=lambda: ())
    await session.begin(min(config.zookeeper.connection_timeout_ms or _PATIENCE_MS, _PATIENCE_MS))
    try:
        if await session.get(f"{chroot}/odradek") is None:
            return "reached; no cluster there yet"
        brokers = await session.children(f"{chroot}/brokers/ids")
    finally:
        await session.close()
    return f"reached; brokers that live: {', '.join(brokers) or 'none'}"
