"""The parts of the synchronous admin client that are written by hand: the rest comes from `aio.py` (`tools/sync_faces.py`)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Self, Unpack

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.network.loop_thread import LoopThread
from odradek.client.settings.options import AdminOptions
from odradek.client.settings.settings import AdminSettings
from odradek.client.settings.shown_settings import with_settings
from odradek.runtime.ports import Clock, Entropy


class AdminSyncParts:  # unused: tools.sync_faces copies its methods
    """Administers a cluster, from any thread.

        with Admin("127.0.0.1:9092") as admin:
            admin.create_topics([NewTopic("flights", partitions=3)])

    A call about one thing raises that thing's KafkaError; a call about several raises PartialFailureError, which holds the
    outcome of each. Calls retry what is worth retrying for `timeout_s`, by default default.api.timeout.ms.
    """

    @with_settings(AdminSettings, AdminOptions)
    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[AdminOptions],
    ) -> None:
        self._admin = AsyncAdmin(bootstrap_servers, clock=clock, entropy=entropy, **settings)
        self._loop = LoopThread("odradek-admin")
        self._closed = False

    @classmethod
    def from_config(cls, config: Mapping[str, object], **more: Unpack[AdminOptions]) -> Self:
        return cls(**AdminSettings.arguments(config), **more)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._loop.is_gone:
                return
            try:
                self._loop.call(self._admin.close())
            finally:
                self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._loop.is_gone:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
            self._loop.stop_soon()
