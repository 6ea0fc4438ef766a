"""The state of a console: its settings, models, sessions and templates. One for each process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from odradek.console.background import BackgroundLoop
from odradek.console.model.models import ClusterModels
from odradek.console.model.moving import MoveRuns
from odradek.console.model.refreshing import ClusterModel
from odradek.console.sql.access import SqlServers, SqlTerms
from odradek.console.web.sessions import Attempts, ConsoleSessions
from odradek.model.safe_text import safe_line
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock

ANONYMOUS: Final = ""
"""The principal of everyone where the console does not ask for a login."""
LIVE_STREAMS_MAX: Final = 200
_SWEEP_S: Final = 60.0
_ROOM: Final = Path(__file__).parent.parent
STATIC: Final = _ROOM / "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """What the command line says."""

    bootstrap: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """How to connect; without name and password where each user logs in."""
    asks_for_login: bool = False
    read_only: bool = False
    hosts: Collection[str] | None = None
    """The names that a Host header may have; None: any."""
    secure_cookies: bool = False
    """Whether browsers may send the cookie over TLS only."""
    sql: SqlTerms | None = None
    """The SQL server whose streams, tables and queries are shown; None: there is none."""


class Console:
    """A console's settings, models and sessions, which all requests share. It runs on the pages' event loop; models run on
    the background loop."""

    def __init__(self, options: ConsoleOptions, clock: Clock | None = None) -> None:
        self.options: Final = options
        self.clock: Final = clock or SystemClock()
        self.background: Final = BackgroundLoop()
        self.models: Final = ClusterModels(options.bootstrap, self.background, self.clock)
        self.moves: Final = MoveRuns(options.bootstrap, self.clock)
        """Rebalances and drains; on the background loop."""
        self.sessions: Final = ConsoleSessions()
        self.attempts: Final = Attempts()
        self.key: Final = os.urandom(32)
        """Makes the tokens of forms; another one in each process."""
        self.templates: Final = _templates()
        self.sql: Final = None if options.sql is None else SqlServers(options.sql, self.clock)
        self.live_streams = 0

    async def model_of(self, principal: str, password: str = "") -> ClusterModel:
        """Returns the model of a principal that is logged in, or of everyone."""
        return await self.models.open(principal, self.settings_of(principal, password))

    def settings_of(self, principal: str, password: str) -> dict[str, Any]:
        """Returns the client's settings for a principal."""
        settings: dict[str, Any] = {"client_id": "odradek-console", **self.options.settings}
        if principal != ANONYMOUS:
            settings |= {"sasl_username": principal, "sasl_password": password}
        return settings

    async def sweep(self) -> None:
        """Closes models of principals without a session, now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sessions.expire(self.clock.monotonic())
            for principal in self.models.principals():
                if principal != ANONYMOUS and not self.sessions.has(principal):
                    await self.models.drop(principal)

    async def close(self) -> None:
        """Closes the models, ends queries, and ends the background loop."""
        await self.background.run(self.moves.close())
        if self.sql is not None:
            self.sql.close()
        await self.models.close()
        self.background.stop()


def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ROOM / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )


def _visible(value: Any) -> Any:
    """Writes invisible and direction-changing characters as escapes, in every text that a template shows."""
    return safe_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value
