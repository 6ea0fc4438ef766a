"""The parts of the synchronous view that are written by hand: the rest comes from `aio.py` (`tools/sync_faces.py`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

from odradek.client.network.loop_thread import LoopThread
from odradek.views.reads import TableRow
from odradek.views.view_core import ViewCore

_MISSING: Final = object()


class ViewSyncParts:  # unused: tools.sync_faces copies its methods
    _loop: LoopThread
    _closed: bool
    _core: ViewCore
    range: Callable[[], Iterator[TableRow]]

    def __getitem__(self, key: object) -> Any:
        """Returns the value of a key. KeyError where there is none."""
        value = self._core.reads.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self._core.reads.get(key, _MISSING) is not _MISSING

    def __len__(self) -> int:
        """Returns the number of keys by counting them: about a second for a million."""
        return self._core.reads.count()

    def __bool__(self) -> bool:
        """Returns True: a view is there, even without rows."""
        return True

    def __iter__(self) -> Iterator[TableRow]:
        """Yields all rows, in the order of keys."""
        return self.range()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._loop.is_gone:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
            self._loop.stop_soon()
