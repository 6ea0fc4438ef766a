"""The state of a console: its settings, models, sessions and templates. One for each process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import jinja2
from markupsafe import Markup

from odradek.console.listeners.reading import BrokerListeners, ListenerTerms
from odradek.console.model.background import BackgroundLoop
from odradek.console.model.models import ClusterModels
from odradek.console.model.moving import MoveRuns
from odradek.console.model.pipeline_upgrades import PipelineUpgrades
from odradek.console.model.refreshing import ClusterModel
from odradek.console.oidc.flow import LoginFlows
from odradek.console.oidc.provider import OidcOptions, OidcProvider, OidcTokens
from odradek.console.oidc.transport import ProviderRefusedError, ProviderUnavailableError
from odradek.console.records.decoding import RecordDecoder
from odradek.console.records.masking import RecordMasks
from odradek.console.records.reading import RecordSight
from odradek.console.sql.access import SqlServers, SqlTerms
from odradek.console.web.sessions import Attempts, ConsoleSession, ConsoleSessions
from odradek.model.aliases import ClientSettings
from odradek.model.safe_text import safe_line
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock
from odradek.runtime.shielded import outcome_of
from odradek.telemetry import events
from odradek.values.schema_registry import SchemaRegistryTerms

_log = events.caused_by_peers("console")

ANONYMOUS: Final = ""
"""The principal of everyone where the console does not ask for a login."""
LIVE_STREAMS_MAX: Final = 200
_SWEEP_S: Final = 60.0
_ROOM: Final = Path(__file__).parent.parent
STATIC: Final = _ROOM / "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """The options of the command line."""

    bootstrap: str
    settings: ClientSettings = field(default_factory=dict, repr=False)
    """How to connect; without name and password where each user logs in."""
    asks_for_login: bool = False
    read_only: bool = False
    hosts: Collection[str] | None = None
    """The names that a Host header may have; None: any."""
    oidc: OidcOptions | None = None
    """The identity provider at which users log in, in place of a name and a password."""
    secure_cookies: bool = False
    """Whether browsers may send the cookie over TLS only."""
    schema_registry: SchemaRegistryTerms | None = None
    """The registry that has the schemas of records; None: they are shown as bytes."""
    masks: RecordMasks = field(default_factory=RecordMasks)
    """The rules that hide parts of records from everyone who uses this console."""
    programs: Sequence[str] = ()
    """The directories whose programs pipelines may be upgraded to from the console; none: it offers no upgrades."""
    listeners: ListenerTerms | None = None
    """The metrics listeners of the brokers; None: traffic and certificates are not shown."""
    certificate: str | None = None
    """The file of the console's own certificate, which ends, too."""
    sql: SqlTerms | None = None
    """The SQL server whose streams, tables and queries are shown; None: there is none."""


class Console:
    """A console's settings, models and sessions, which all requests share. It runs on the pages' event loop; models run on
    the background loop."""

    def __init__(self, options: ConsoleOptions, clock: Clock | None = None) -> None:
        self.options: Final = options
        self.clock: Final = clock or SystemClock()
        self.background: Final = BackgroundLoop()
        self.decoder: Final = RecordDecoder(options.schema_registry, self.clock)
        sight = RecordSight(masks=options.masks, decoder=self.decoder)
        self.models: Final = ClusterModels(options.bootstrap, self.background, self.clock, sight=sight)
        self.upgrades: Final = PipelineUpgrades(options.programs, options.bootstrap)
        """Dry runs of upgrades of pipelines; on the background loop."""
        self.moves: Final = MoveRuns(options.bootstrap, self.clock)
        """Rebalances and drains; on the background loop."""
        self.listeners: Final = (
            None if options.listeners is None else BrokerListeners(options.listeners, self.clock)
        )
        """What brokers show of themselves; on the background loop."""
        self.sessions: Final = ConsoleSessions()
        self.attempts: Final = Attempts()
        self.key: Final = os.urandom(32)
        """Makes the tokens of forms; another one in each process."""
        self.provider: Final = None if options.oidc is None else OidcProvider(options.oidc, self.clock)
        self.flows: Final = LoginFlows(self.key)
        self._renewals: dict[str, asyncio.Task[bool]] = {}
        self._revocations: set[asyncio.Task[None]] = set()
        self.templates: Final = _templates()
        self.sql: Final = None if options.sql is None else SqlServers(options.sql, self.clock, options.masks)
        self.live_streams = 0
        self.ended: Final = asyncio.Event()
        """Set when the server ends: event streams end then."""

    async def model_of(self, principal: str, password: str = "") -> ClusterModel:
        """Returns the model of a principal that is logged in, or of everyone."""
        return await self.models.open(principal, self.settings_of(principal, password))

    async def model_of_session(self, session: ConsoleSession) -> ClusterModel | None:
        """Returns the model of a login; None if its token has expired and cannot be refreshed."""
        if session.tokens is None:
            return await self.model_of(session.principal, session.password)
        if not await self._is_fresh(session):
            return None
        return await self.models.open(session.login_key, self.settings_with(session.tokens))

    async def _is_fresh(self, session: ConsoleSession) -> bool:
        """Refreshes the token of a login in time; requests that come meanwhile share the attempt."""
        assert session.tokens is not None
        if session.tokens.is_fresh(self.clock.monotonic()):
            return True
        task = self._renewals.get(session.login_key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._renewed(session))
            self._renewals[session.login_key] = task
            task.add_done_callback(lambda _: self._renewals.pop(session.login_key, None))
        return await outcome_of(task)

    async def _renewed(self, session: ConsoleSession) -> bool:
        tokens, provider = session.tokens, self.provider
        assert tokens is not None
        assert provider is not None
        is_valid = tokens.expires_s > self.clock.monotonic()
        if not tokens.refresh_token:
            return is_valid
        try:
            session.tokens = await provider.refresh(tokens)
        except ProviderUnavailableError as error:
            _log.warning("console_token_not_refreshed", reason=str(error))
            return is_valid
        except ProviderRefusedError as error:
            _log.warning("console_token_not_refreshed", reason=str(error))
            return False
        settings = self.settings_with(session.tokens)
        await self.models.renew(session.login_key, settings)
        await self.background.run(self.moves.renew(settings, session.login_key))
        return True

    async def end_session(self, session_id: str) -> None:
        """Ends a session. The connections of its login end with the last session, and its refresh token at the provider."""
        session = self.sessions.end(session_id)
        if session is None:
            return
        if not self.sessions.has(session.login_key):
            await self.models.drop(session.login_key)
        if session.tokens is not None and self.provider is not None:
            task = asyncio.get_running_loop().create_task(self.provider.revoke(session.tokens))
            self._revocations.add(task)  # the user does not wait for the provider
            task.add_done_callback(self._revocations.discard)

    def settings_with(self, tokens: OidcTokens) -> dict[str, object]:
        """Returns the client's settings for a login by a token."""
        return {
            "client_id": "odradek-console",
            **self.options.settings,
            "sasl_oauthbearer_token": tokens.token,
        }

    def settings_of(self, principal: str, password: str) -> dict[str, object]:
        """Returns the client's settings for a principal."""
        settings: dict[str, object] = {"client_id": "odradek-console", **self.options.settings}
        if principal != ANONYMOUS:
            settings |= {"sasl_username": principal, "sasl_password": password}
        return settings

    async def sweep(self) -> None:
        """Closes models of logins without a session, and refreshes the token of a run of moves, until it is cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sessions.expire(self.clock.monotonic())
            run = self.moves.last
            session = None if run is None or run.is_over else self.sessions.of_login(run.login_key)
            if session is not None and session.tokens is not None:
                await self._is_fresh(session)
            for principal in self.models.principals():
                if principal != ANONYMOUS and not self.sessions.has(principal):
                    await self.models.drop(principal)

    async def close(self) -> None:
        """Closes the models, ends queries, and ends the background loop."""
        await asyncio.gather(*self._renewals.values(), *self._revocations, return_exceptions=True)
        self.upgrades.close()
        await self.background.run(self.moves.close())
        if self.sql is not None:
            self.sql.close()
        await self.models.close()
        self.background.stop()


@cache
def _templates() -> jinja2.Environment:
    """Returns the templates that all consoles of this process share: each template is compiled once."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ROOM / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )


def _visible(value: object) -> object:
    """Writes invisible and direction-changing characters as escapes, in every text that a template shows."""
    return safe_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value
