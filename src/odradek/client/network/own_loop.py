"""The event loop of an asynchronous client: its user's, from the first call on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from odradek.client.network.errors import IllegalStateError


class OwnLoop:
    """The event loop of an asynchronous client. It replaces `LoopThread` for a client on its caller's loop: calls need no
    other thread."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process_id = 0

    @property
    def has_begun(self) -> bool:
        return self._loop is not None

    @property
    def is_current(self) -> bool:
        """The caller runs on the client's loop."""
        return self._loop is not None and asyncio._get_running_loop() is self._loop

    @property
    def is_gone(self) -> bool:
        """True if the loop ended, or belongs to the process that forked this one: nothing of the client can
        be reached."""
        return self._loop is not None and (self._loop.is_closed() or self._process_id != os.getpid())

    def begin(self) -> bool:
        """Take the running loop; False when that was done before. IllegalStateError where another loop runs."""
        if self._loop is not None:
            self.check()
            return False
        self._loop = asyncio.get_running_loop()
        self._process_id = os.getpid()
        return True

    def check(self) -> None:
        """Raises IllegalStateError where the client has begun to work on another loop, or in another process."""
        if self._loop is None or self.is_current:
            return
        if self._process_id != os.getpid():
            raise IllegalStateError(
                f"this {self._kind} belongs to process {self._process_id}, which forked this one: make another one here"
            )
        raise IllegalStateError(
            f"this {self._kind} belongs to another event loop, which runs its connections: use it there, or make another"
            " one for this loop"
        )

    def stop(self) -> None:
        """Does nothing: the loop is the user's."""

    def post(self, work: Callable[[], object]) -> None:
        """Do it now. Before the client has begun there is nothing to do."""
        if self._loop is not None:
            self.check()
            work()

    @property
    def _kind(self) -> str:
        return self.name.removeprefix("odradek-")
