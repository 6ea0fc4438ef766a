"""What of the synchronous consumer is written by hand: the rest is made of `aio.py` (`tools/sync_faces.py`)."""

from __future__ import annotations

import warnings
from typing import Self

from odradek.client.network.loop_thread import LoopThread


class SyncParts:
    _loop: LoopThread
    _closed: bool

    def __enter__(self) -> Self:
        return self

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
            self._loop.stop_soon()
