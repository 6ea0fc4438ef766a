"""Which session of ZooKeeper a broker's registration belongs to; read as anyone may, by kazoo."""

from __future__ import annotations

from typing import Any, Self

from kazoo.client import KazooClient


class Sessions:
    """A context manager: connected as long as it is open."""

    def __init__(self, address: str, root: str) -> None:
        self._client: Any = KazooClient(hosts=address, timeout=10.0)
        self._root = root

    def owner(self, broker: int) -> int | None:
        """The session that holds the broker's registration; None when there is none."""
        stat = self._client.retry(self._client.exists, f"{self._root}/brokers/ids/{broker}")
        return None if stat is None else int(stat.ephemeralOwner)

    def __enter__(self) -> Self:
        self._client.start(timeout=30.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()
