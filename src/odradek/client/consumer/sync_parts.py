"""The parts of the synchronous consumer that are written by hand: the rest comes from `aio.py` (`tools/sync_faces.py`)."""

from __future__ import annotations

import warnings
from typing import Generic, Self

from odradek.client.consumer.consumer_record import ConsumerRecord, K, V
from odradek.client.consumer.core import ConsumerCore
from odradek.client.consumer.sole_use import ThreadUse
from odradek.client.network.loop_thread import LoopThread


class ConsumerSyncParts(Generic[K, V]):  # unused: tools.sync_faces copies its methods
    _loop: LoopThread
    _closed: bool
    _core: ConsumerCore[K, V]
    _use: ThreadUse

    def __enter__(self) -> Self:
        return self

    def _next_kept(self) -> ConsumerRecord[K, V] | None:
        self._use.begin()
        try:
            return self._core.next_kept()
        finally:
            self._use.end()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._loop.is_gone:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
            self._loop.stop_soon()
