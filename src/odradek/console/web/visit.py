"""One request, as a page sees it: who looks, at what, in which language; and how the page is answered."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Coroutine, Iterable, Mapping
from typing import Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from odradek.console.model.refreshing import ClusterModel
from odradek.console.model.snapshot import ModelSnapshot
from odradek.console.web.catalogue import LANGUAGE_NAMES, LANGUAGES, Catalogue, catalogue, preferred_language
from odradek.console.web.console import ANONYMOUS, Console
from odradek.console.web.sessions import form_token
from odradek.model.errors import ErrorCode, KafkaError

SESSION_COOKIE: Final = "odradek_console"
LANGUAGE_COOKIE: Final = "odradek_console_language"
THEME_COOKIE: Final = "odradek_console_theme"
THEMES: Final = ("light", "dark")
TOKEN_FIELD: Final = "token"
FORM_BYTES_MAX: Final = 12 << 20
FORM_FIELDS_MAX: Final = 500
FIRST_READING_S: Final = 3.0
T = TypeVar("T")


class ForgedFormError(KafkaError):
    """A form came without the token of this browser."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, "the form is too old: load the page again")


class Visit:
    """A request. `principal` is None for a visitor that has to log in first."""

    def __init__(self, console: Console, request: Request, browser_id: str) -> None:
        self.console: Final = console
        self.request: Final = request
        self.browser_id: Final = browser_id
        """The session's id after a login; before it, an id that only ties forms to the browser."""
        self.principal: str | None = None
        self.login_key = ANONYMOUS
        self.form: Mapping[str, str] = {}
        self._model: ClusterModel | None = None
        self.catalogue: Final[Catalogue] = catalogue(_language_of(request))
        theme = request.cookies.get(THEME_COOKIE, "")
        self.theme: Final = theme if theme in THEMES else ""

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def model(self) -> ClusterModel:
        """The model of the cluster; only pages that need a login may ask for it."""
        assert self._model is not None
        return self._model

    @property
    def snapshot(self) -> ModelSnapshot:
        return self.model.snapshot

    @property
    def token(self) -> str:
        """The token that forms of this browser send back."""
        return form_token(self.console.key, self.browser_id)

    async def admit(self) -> bool:
        """Finds out who looks, and their model; False if they have to log in first."""
        console = self.console
        if not console.options.asks_for_login:
            self.principal = ANONYMOUS
            self._model = await console.model_of(ANONYMOUS)
            return True
        session = console.sessions.get(self.browser_id, console.clock.monotonic())
        if session is None:
            return False
        model = await console.model_of_session(session)
        if model is None:
            await console.end_session(self.browser_id)
            return False
        self.principal, self.login_key = session.principal, session.login_key
        self._model = model
        return True

    async def wait_until_read(self) -> None:
        """Gives a model that has just begun a moment to read the cluster."""
        if self.snapshot.is_read or self.snapshot.readings["brokers"].problem:
            return
        try:
            async with asyncio.timeout(FIRST_READING_S):
                await self.run(self.model.wait_until_read())
        except TimeoutError:
            pass  # the page shows that nothing is known yet

    async def run(self, coroutine: Coroutine[object, None, T]) -> T:
        """Runs a call of the model or its client, on the loop where they live."""
        return await self.console.background.run(coroutine)

    async def read_form(self) -> None:
        """Reads the form of a POST, and checks its token. Raises ForgedFormError, or INVALID_REQUEST if it is too large."""
        body = bytearray()
        async for chunk in self.request.stream():
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"a form may have {FORM_BYTES_MAX} bytes")
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the form cannot be read: {error}") from error
        self.form = dict(pairs)
        if not hmac.compare_digest(self.form.get(TOKEN_FIELD, "").encode(), self.token.encode()):
            raise ForgedFormError

    def render(self, template: str, status: int = 200, /, **values: object) -> Response:
        """Returns the page of a template of `templates/`."""
        text = self.console.templates.get_template(template).render(**self.values(), **values)
        return HTMLResponse(text, status)

    def redirect(self, path: str, notice: str = "") -> Response:
        """Sends the browser to another page, which shows the text `notice.NOTICE`."""
        if notice:
            path += ("&" if "?" in path else "?") + urlencode({"notice": notice})
        return RedirectResponse(path, 303)

    def here(self, **changes: object) -> str:
        """Returns the path of this page with other parameters: None removes one."""
        values = {name: value for name, value in self.query.items() if name != "notice"}
        values |= {name: str(value) for name, value in changes.items() if value is not None}
        for name in [name for name, value in changes.items() if value is None]:
            values.pop(name, None)
        path = quote(self.request.url.path, safe="/")
        return f"{path}?{urlencode(values)}" if values else path

    def error_text(self, text: str, topics: Iterable[str] | None = None) -> str:
        """Returns the text of a program's failure, which may quote a record; with masks only if `topics` has no masked one."""
        masks = self.console.options.masks
        if not masks or (topics is not None and not any(map(masks.hides, topics))):
            return text
        return self.catalogue.text("record.error_masked")

    def values(self) -> dict[str, object]:
        """Returns what every template may use."""
        words = self.catalogue
        notice = f"notice.{self.query.get('notice', '')}"
        return {
            "t": words.text,
            "number": words.number,
            "size": words.size,
            "seconds": words.seconds,
            "age": self._age,
            "here": self.here,
            "link": lambda *parts: "/" + "/".join(quote(str(part), safe="") for part in parts),
            "error_text": self.error_text,
            "language": words.language,
            "languages": [(code, LANGUAGE_NAMES[code]) for code in LANGUAGES],
            "theme": self.theme,
            "token": self.token,
            "path": self.request.url.path,
            "principal": self.principal,
            "read_only": self.console.options.read_only,
            "notice": words.text(notice) if notice in words.texts else "",
            "snapshot": None if self._model is None else self._model.snapshot,
        }

    def _age(self, *parts: str) -> float | None:
        """Returns the seconds since the part that was read longest ago was read; None if one was never read."""
        read_ms = [self.snapshot.readings[part].read_ms for part in parts]
        if min(read_ms) < 0:
            return None
        return max(0.0, (self.console.clock.wall_ms() - min(read_ms)) / 1000)


def _language_of(request: Request) -> str:
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    return chosen if chosen in LANGUAGES else preferred_language(request.headers.get("accept-language", ""))


def own_path(path: str) -> str:
    """Returns a path of this console to go on to; the overview for anything that could lead elsewhere."""
    is_own = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if is_own else "/"
