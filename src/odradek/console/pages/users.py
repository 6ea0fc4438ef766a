"""Users that log in by SCRAM: listed, given a password, removed. The page shows what a change does before it does it."""

from __future__ import annotations

import secrets
from typing import Final

from starlette.responses import Response

from odradek.client.admin.users import NewPassword, user_name_problem
from odradek.client.network.errors import explain
from odradek.console.pages.offers import age_of, list_page, offers_of, reading_of
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
from odradek.security.acls import Acl

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
CALL_S: Final = 15.0
PASSWORD_BYTES: Final = 18
PASSWORD_LENGTH_MAX: Final = 1024
NAME_LENGTH_MAX: Final = 256
RULES_MAX: Final = 20


async def show(visit: Visit) -> Response:
    """Lists users and their mechanisms."""
    users, problem = await reading_of(visit, visit.model.access.users, {})
    rows = [
        (f"{name} {' '.join(mechanisms)}", (name, mechanisms)) for name, mechanisms in sorted(users.items())
    ]
    return visit.render(
        "users.html",
        active="people",
        tab="users",
        listed=list_page(visit, rows),
        problem=problem,
        read_age=age_of(visit, visit.model.access.users),
        offers=await offers_of(visit),
    )


async def show_password(visit: Visit) -> Response:
    """Shows the form; with a name, what a new password changes."""
    name = visit.query.get("name", "")
    try:
        return await _password_page(visit, name, _mechanism(visit.query.get("mechanism", "")) if name else "")
    except OdradekError as error:
        return await _password_page(visit, "", "", explain(error), 400)


async def set_password(visit: Visit) -> Response:
    """Sets the password that was typed; without one, makes one and shows it once."""
    name, password = visit.query.get("name", ""), visit.form.get("password", "")
    try:
        mechanism = _mechanism(visit.query.get("mechanism", ""))
        _check_name(name)
        if len(password) > PASSWORD_LENGTH_MAX:
            raise ConfigError(visit.catalogue.text("users.password_long", count=PASSWORD_LENGTH_MAX))
        if password != visit.form.get("again", ""):
            raise ConfigError(visit.catalogue.text("users.passwords_differ"))
        made = "" if password else secrets.token_urlsafe(PASSWORD_BYTES)
        change = NewPassword(password=password or made, mechanism=mechanism)
        await visit.run(visit.model.admin.alter_users({name: change}, timeout_s=CALL_S))
    except OdradekError as error:
        return await _password_page(visit, name, visit.query.get("mechanism", ""), explain(error), 400)
    visit.model.access.users.forget()
    if made:
        return visit.render("user_made.html", active="people", name=name, mechanism=mechanism, made=made)
    return visit.redirect("/people", "password_set")


async def _password_page(
    visit: Visit, name: str, mechanism: str, line: str = "", status: int = 200
) -> Response:
    if name and not line:
        _check_name(name)
    users, problem = await reading_of(visit, visit.model.access.users, {})
    return visit.render(
        "user_password.html",
        status,
        active="people",
        name=name,
        mechanism=mechanism,
        mechanisms=MECHANISMS,
        known=users.get(name, {}),
        is_known=name in users,
        line=line or problem,
        offers=await offers_of(visit),
    )


async def show_remove(visit: Visit) -> Response:
    return await _remove_page(visit, visit.query.get("name", ""), visit.query.get("mechanism", ""))


async def remove(visit: Visit) -> Response:
    """Removes the credentials of one mechanism."""
    name, mechanism = visit.query.get("name", ""), visit.query.get("mechanism", "")
    try:
        await visit.run(visit.model.admin.alter_users({name: _mechanism(mechanism)}, timeout_s=CALL_S))
    except OdradekError as error:
        return await _remove_page(visit, name, mechanism, explain(error), 400)
    visit.model.access.users.forget()
    return visit.redirect("/people", "user_removed")


async def _remove_page(
    visit: Visit, name: str, mechanism: str, line: str = "", status: int = 200
) -> Response:
    users, problem = await reading_of(visit, visit.model.access.users, {})
    if not problem and mechanism not in users.get(name, {}):
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND, visit.catalogue.text("users.unknown", name=name[:NAME_LENGTH_MAX])
        )
    nothing: list[Acl] = []
    acls, unread = await reading_of(visit, visit.model.access.acls, nothing)
    rules = [acl for acl in acls if acl.principal == f"User:{name}"]
    return visit.render(
        "user_remove.html",
        status,
        active="people",
        name=name,
        mechanism=mechanism,
        others=[other for other in users.get(name, {}) if other != mechanism],
        rules=rules[:RULES_MAX],
        rules_left_out=max(0, len(rules) - RULES_MAX),
        line=line or problem or unread,
        offers=await offers_of(visit),
    )


def _mechanism(text: str) -> str:
    if text not in MECHANISMS:
        raise ConfigError(f"mechanism {text[:50]!r} has no stored credentials: use {', '.join(MECHANISMS)}")
    return text


def _check_name(name: str) -> None:
    problem = "is too long" if len(name) > NAME_LENGTH_MAX else user_name_problem(name)
    if problem is not None:
        raise ConfigError(f"the name {name[:50]!r} {problem}: no client could log in with it")


PAGES: Final = (
    ConsolePage(path="/people", show=show),
    ConsolePage(path="/people/users/password", show=show_password, act=set_password),
    ConsolePage(path="/people/users/remove", show=show_remove, act=remove),
)
