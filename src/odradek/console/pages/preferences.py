"""Language and colours: a form in the head of each page, kept in cookies of the browser."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from odradek.console.web.application import ConsolePage
from odradek.console.web.catalogue import LANGUAGES
from odradek.console.web.visit import LANGUAGE_COOKIE, THEME_COOKIE, THEMES, Visit, own_path

_YEAR_S: Final = 365 * 86_400


async def choose(visit: Visit) -> Response:
    """Keeps the choice, and goes back to the page where it was made."""
    response = visit.redirect(own_path(visit.form.get("back", "/")))
    language, theme = visit.form.get("language", ""), visit.form.get("theme", "")
    if language in LANGUAGES:
        _keep(response, LANGUAGE_COOKIE, language)
    if theme in THEMES:
        _keep(response, THEME_COOKIE, theme)
    return response


def _keep(response: Response, name: str, value: str) -> None:
    response.set_cookie(name, value, max_age=_YEAR_S, httponly=True, samesite="strict")


PAGES: Final = (ConsolePage(path="/preferences", act=choose, is_public=True, changes_cluster=False),)
