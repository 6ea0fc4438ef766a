"""Who is logged in: sessions with limits, and the pause after wrong passwords. Pure: the time comes as an argument."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from odradek.console.oidc.provider import OidcTokens

IDLE_S: Final = 30 * 60.0
ABSOLUTE_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 1_000
FREE_ATTEMPTS: Final = 5
"""The number of wrong passwords for a name, or from an address, before attempts have to wait."""
PAUSE_S: Final = 2.0
PAUSE_MAX_S: Final = 300.0
FORGOTTEN_AFTER_S: Final = 900.0
SUBJECTS_MAX: Final = 10_000


@dataclass(slots=True)
class ConsoleSession:
    """One login. `password` or `tokens` are for the cluster, `sql_user` and `sql_password` for the SQL server.

    None of them leaves this process, but to the server that it is for.
    """

    principal: str
    password: str
    began_s: float
    used_s: float
    tokens: OidcTokens | None = None
    """The tokens of a login at an identity provider; None for a login by password."""
    login_key: str = ""
    """The key of the login's model: sessions by one password share a model, and those by tokens do not."""
    sql_user: str = ""
    sql_password: str = ""

    def __repr__(self) -> str:
        return f"Session({self.principal!r})"


class ConsoleSessions:
    """Sessions by their ids. An id is made at login, is 256 bits of the system's entropy, and only its hash is a key here."""

    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions: OrderedDict[bytes, ConsoleSession] = OrderedDict()
        self._sessions_max = sessions_max

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, principal: str, password: str, now_s: float, tokens: OidcTokens | None = None) -> str:
        """Returns the id of a new session. The one that was used longest ago makes room."""
        session_id = new_id()
        login_key = principal if tokens is None else f"{principal} {new_id()}"
        session = ConsoleSession(principal, password, now_s, now_s, tokens, login_key)
        self._sessions[_key(session_id)] = session
        while len(self._sessions) > self._sessions_max:
            self._sessions.popitem(last=False)
        return session_id

    def get(self, session_id: str, now_s: float) -> ConsoleSession | None:
        """Returns the session, and notes its use; None if there is none or it has expired."""
        key = _key(session_id)
        session = self._sessions.get(key)
        if session is None:
            return None
        if _is_over(session, now_s):
            del self._sessions[key]
            return None
        session.used_s = now_s
        self._sessions.move_to_end(key)
        return session

    def end(self, session_id: str) -> ConsoleSession | None:
        """Removes the session, and returns it."""
        return self._sessions.pop(_key(session_id), None)

    def expire(self, now_s: float) -> None:
        """Removes the sessions that are over."""
        for key in [key for key, session in self._sessions.items() if _is_over(session, now_s)]:
            del self._sessions[key]

    def of_login(self, login_key: str) -> ConsoleSession | None:
        """Returns a session of a login; None if there is none."""
        return next((session for session in self._sessions.values() if session.login_key == login_key), None)

    def has(self, login_key: str) -> bool:
        """Tells whether a login has a session."""
        return any(session.login_key == login_key for session in self._sessions.values())


class Attempts:
    """Counts wrong passwords by subject (a name, an address). After `FREE_ATTEMPTS`, each doubles the pause."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait_s(self, subjects: tuple[str, ...], now_s: float) -> float:
        """Returns the seconds until the next attempt is allowed; 0 if it is allowed now."""
        return max((self._wait_s(subject, now_s) for subject in subjects), default=0.0)

    def _wait_s(self, subject: str, now_s: float) -> float:
        count, last_s = self._failures.get(subject, (0, 0.0))
        if count < FREE_ATTEMPTS or now_s - last_s > FORGOTTEN_AFTER_S:
            return 0.0
        pause_s = min(PAUSE_MAX_S, PAUSE_S * float(1 << min(count - FREE_ATTEMPTS, 20)))
        return max(0.0, last_s + pause_s - now_s)

    def fail(self, subjects: tuple[str, ...], now_s: float) -> None:
        """Notes a wrong password."""
        for subject in subjects:
            count, last_s = self._failures.pop(subject, (0, now_s))
            self._failures[subject] = (1 if now_s - last_s > FORGOTTEN_AFTER_S else count + 1, now_s)
        while len(self._failures) > SUBJECTS_MAX:
            self._failures.popitem(last=False)

    def forget(self, subject: str) -> None:
        """Forgets the failures of a subject: its password was right."""
        self._failures.pop(subject, None)

    def forgive(self, subject: str) -> None:
        """Forgets one failure: that attempt was none. Failures of others from the same address still count."""
        count, last_s = self._failures.get(subject, (0, 0.0))
        if count > 1:
            self._failures[subject] = (count - 1, last_s)
        else:
            self._failures.pop(subject, None)


def new_id() -> str:
    """Returns an id that no one can guess, of letters that a cookie may have."""
    return secrets.token_urlsafe(32)


def form_token(key: bytes, browser_id: str) -> str:
    """Returns the token that every form of this browser has to send back: pages of strangers do not know it."""
    return hmac.new(key, browser_id.encode(), hashlib.sha256).hexdigest()


def _is_over(session: ConsoleSession, now_s: float) -> bool:
    return now_s - session.used_s > IDLE_S or now_s - session.began_s > ABSOLUTE_S


def _key(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "replace")).digest()
