"""The event loop of an asynchronous client: its user's, from the first call on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final


class OwnLoop:
    """`LoopThread` for a client that lives on the loop of its caller: nothing has to be handed over."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def has_begun(self) -> bool:
        return self._loop is not None

    def begin(self) -> bool:
        """Take the running loop; False when that was done before."""
        if self._loop is not None:
            return False
        self._loop = asyncio.get_running_loop()
        return True

    def stop(self) -> None:
        """The loop is the user's: nothing of it ends."""

    def post(self, work: Callable[[], object]) -> None:
        """Do it now. Before the client has begun there is nothing to do."""
        if self._loop is not None:
            work()
