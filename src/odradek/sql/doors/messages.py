"""The messages between the server and its doors, over a channel such as the engine's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.sql.metastore.catalog import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDoors:
    """The message that opens the doors. Ports are on 127.0.0.1: None for a door that stays shut, 0 for any port. `options`
    are options of `format("odradek")`."""

    connect: int | None
    jdbc: int | None
    servers: str
    options: Mapping[str, str] = field(repr=False)
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSources:
    """The message that lists all streams and tables that the doors show from now on."""

    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorsOpen:
    """The doors are open, at these ports."""

    connect: int | None
    jdbc: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorsFailed:
    """The message that the doors cannot be opened, with the reason in one line."""

    problem: str
