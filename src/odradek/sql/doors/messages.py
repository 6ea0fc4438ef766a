"""The messages between the server and its doors, over a channel such as the engine's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.sql.catalog import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDoors:
    """Ports on 127.0.0.1: None for a door that stays shut, 0 for any port. `options`: of `format("odradek")`."""

    connect: int | None
    jdbc: int | None
    servers: str
    options: Mapping[str, str] = field(repr=False)
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSources:
    """All that there is now."""

    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorsOpen:
    """The doors are open, at these ports."""

    connect: int | None
    jdbc: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorsFailed:
    """They do not open: one line."""

    problem: str
