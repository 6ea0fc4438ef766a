"""One file per API. `Handlers` is what this broker serves; ApiVersions and the dispatcher read it.

A handler's module is imported when its API is asked for the first time: a broker that starts imports none of
them. The modules of `DATA_PATH` are imported soon after the start, so that producers and consumers are served
even when no file can be opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.broker.requests.context import ApiHandler
from odradek.model.lazy import lazy
from odradek.protocol import APIS, Api

DATA_PATH: Final = (
    "ApiVersions",
    "Metadata",
    "Produce",
    "Fetch",
    "ListOffsets",
    "FindCoordinator",
    "InitProducerId",
)


class Handlers(Mapping[int, ApiHandler]):
    """Handlers by API key."""

    def __init__(self) -> None:
        self._apis = {api.key: api for api in APIS.values() if api.served}
        self._loaded: dict[int, ApiHandler] = {}

    def __getitem__(self, api_key: int) -> ApiHandler:
        served = self._loaded.get(api_key)
        if served is None:
            module = lazy(f"{__name__}.{self._apis[api_key].family}.{self._apis[api_key].snake_name}")
            # A handler that must know what else is served is made with this mapping's keys.
            served = module.serving(lambda: self._apis) if hasattr(module, "serving") else module.SERVED
            self._loaded[api_key] = served
        return served

    def load(self, api: Api) -> None:
        """Import the handler, and the messages, of an API."""
        _ = self[api.key], api.request, api.response

    def __iter__(self) -> Iterator[int]:
        return iter(self._apis)

    def __len__(self) -> int:
        return len(self._apis)

    def __contains__(self, api_key: object) -> bool:
        return api_key in self._apis


def served_apis() -> list[ApiHandler]:
    """Returns all handlers, imported."""
    return list(Handlers().values())
