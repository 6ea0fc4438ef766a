"""The hand-written parts of the synchronous share consumer: the rest comes from `aio.py` (`tools/sync_faces.py`)."""

from __future__ import annotations

import warnings
from typing import Generic, Self

from odradek.client.consumer.consumer_record import K, V
from odradek.client.network.loop_thread import LoopThread


class ShareConsumerSyncParts(Generic[K, V]):  # unused: tools.sync_faces copies its methods
    _loop: LoopThread
    _closed: bool

    def __enter__(self) -> Self:
        return self

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._loop.is_gone:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
            self._loop.stop_soon()
