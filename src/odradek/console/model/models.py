"""The models of a console, one for each principal: a bounded number. The one that was used longest ago is closed first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from odradek.console.model.background import BackgroundLoop
from odradek.console.model.refreshing import ClusterModel
from odradek.console.records.reading import RecordSight
from odradek.model.aliases import ClientSettings
from odradek.runtime.ports import Clock

MODELS_MAX: Final = 16
GRACE_S: Final = 60.0
"""A model that was replaced is closed after this: no request takes longer."""


class ClusterModels:
    """Makes, keeps and closes models. Used from the loop of the pages; models live on the background loop."""

    def __init__(
        self,
        bootstrap: str,
        background: BackgroundLoop,
        clock: Clock,
        models_max: int = MODELS_MAX,
        *,
        sight: RecordSight | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._background = background
        self._clock = clock
        self._models_max = models_max
        self._sight = sight
        self._models: OrderedDict[str, ClusterModel] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def principals(self) -> list[str]:
        """Returns the principals that have a model."""
        return list(self._models)

    async def open(self, principal: str, settings: ClientSettings) -> ClusterModel:
        """Returns the principal's model, which is made with these settings if there is none."""
        model = self._models.get(principal)
        if model is None:
            model = await self._background.run(self._made(settings))
            other = self._models.setdefault(principal, model)
            if other is not model:  # two requests came at the same time
                self._background.start(model.close())
                model = other
        self._models.move_to_end(principal)
        while len(self._models) > self._models_max:
            _, oldest = self._models.popitem(last=False)
            self._background.start(oldest.close())
        model.touch()
        return model

    async def replace(self, principal: str, settings: ClientSettings) -> ClusterModel:
        """Returns a new model: the principal logged in again, perhaps with another password."""
        await self.drop(principal)
        return await self.open(principal, settings)

    async def renew(self, principal: str, settings: ClientSettings) -> None:
        """Continues with other settings, such as a fresh token: the new model begins with what the one before has read."""
        before = self._models.get(principal)
        if before is None:
            return
        model = await self._background.run(self._made(settings, before))
        if self._models.get(principal) is before:
            self._models[principal] = model
            self._background.start(_close_later(before))
        else:  # the session has ended meanwhile
            self._background.start(model.close())

    async def drop(self, principal: str) -> None:
        """Closes the principal's model, if there is one."""
        model = self._models.pop(principal, None)
        if model is not None:
            await self._background.run(model.close())

    async def close(self) -> None:
        """Closes all of them. Idempotent."""
        for principal in list(self._models):
            await self.drop(principal)

    async def _made(self, settings: ClientSettings, before: ClusterModel | None = None) -> ClusterModel:
        if before is not None:
            await before.rest()
        model = ClusterModel(self._bootstrap, settings, self._clock, before, self._sight)
        await model.start()
        return model


async def _close_later(model: ClusterModel) -> None:
    """Closes a model once the pages that still use it are answered."""
    try:
        await asyncio.sleep(GRACE_S)
    finally:
        await model.close()
