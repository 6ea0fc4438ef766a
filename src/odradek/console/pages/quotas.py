"""Quotas: how much users, client ids and addresses may use; listed, set and removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from odradek.client.admin.quotas import QUOTA_MEANINGS, QuotaEntity
from odradek.client.network.errors import explain
from odradek.console.pages.offers import age_of, list_page, offers_of, reading_of
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.java_numbers import finite_number

CALL_S: Final = 15.0
NAME_LENGTH_MAX: Final = 1_000
PARTS: Final = (("user", "user"), ("client", "client_id"), ("ip", "ip"))
"""Fields of the form, and of a `QuotaEntity`."""
_OF_ADDRESSES: Final = "connection_creation_rate"


class QuotaStep(NamedTuple):
    """One quota before and after; None: no limit."""

    key: str
    before: float | None
    after: float | None


async def show(visit: Visit) -> Response:
    """Lists quotas."""
    quotas, problem = await reading_of(visit, visit.model.access.quotas, {})
    rows = [
        (f"{entity} {key}", (entity, key, value))
        for entity, limits in sorted(quotas.items(), key=lambda pair: str(pair[0]))
        for key, value in sorted(limits.items())
    ]
    return visit.render(
        "quotas.html",
        active="people",
        tab="quotas",
        listed=list_page(visit, rows),
        problem=problem,
        read_age=age_of(visit, visit.model.access.quotas),
        offers=await offers_of(visit),
        quota_link=quota_link,
        number_text=number_text,
    )


def quota_link(entity: QuotaEntity) -> str:
    """Returns the page that changes the quotas of an entity."""
    return "/people/quotas/change?" + urlencode(_fields_of(entity))


def _fields_of(entity: QuotaEntity) -> dict[str, str]:
    fields = {}
    for field, part in PARTS:
        name = getattr(entity, part)
        if name:
            fields[field] = name
        elif name is not None:
            fields[f"any-{field}"] = "1"
    return fields


def number_text(value: float | None) -> str:
    """Returns a limit without a needless `.0`; "" without one."""
    if value is None:
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


async def show_change(visit: Visit) -> Response:
    """Shows for whom a quota may be; for an entity, its quotas in a form."""
    try:
        entity = _entity(visit, visit.query)
    except ConfigError as error:
        is_asked = any(visit.query.get(name) for field, _ in PARTS for name in (field, f"any-{field}"))
        return await _page(
            visit, None, visit.query, explain(error) if is_asked else "", 400 if is_asked else 200
        )
    return await _page(visit, entity, visit.query)


async def change(visit: Visit) -> Response:
    """Checks the change on the cluster and shows it; with `sure`, makes it."""
    entity = None
    try:
        entity = _entity(visit, visit.query)
        quotas = await visit.run(visit.model.access.quotas.get())
        changes = _changes(visit, quotas.get(entity, {}))
        if not changes:
            raise ConfigError(visit.catalogue.text("quotas.nothing"))
        wanted = {entity: {change.key: change.after for change in changes}}
        is_sure = "sure" in visit.form
        await visit.run(visit.model.admin.alter_quotas(wanted, validate_only=not is_sure, timeout_s=CALL_S))
    except OdradekError as error:
        return await _page(visit, entity, visit.form, explain(error), 400)
    if not is_sure:
        return await _page(visit, entity, visit.form, changes=changes)
    visit.model.access.quotas.forget()
    return visit.redirect("/people/quotas", "quotas_changed")


async def _page(
    visit: Visit,
    entity: QuotaEntity | None,
    form: Mapping[str, str],
    line: str = "",
    status: int = 200,
    changes: list[QuotaStep] | None = None,
) -> Response:
    quotas, problem = await reading_of(visit, visit.model.access.quotas, {})
    known = quotas.get(entity, {}) if entity is not None else {}
    keys = [
        key for key in QUOTA_MEANINGS if entity is None or (key == _OF_ADDRESSES) == (entity.ip is not None)
    ]
    return visit.render(
        "quota_change.html",
        status,
        active="people",
        entity=entity,
        form=form,
        parts_of=[field for field, _ in PARTS],
        keys=keys,
        shown={key: form.get(key, number_text(known.get(key))) for key in keys},
        changes=changes,
        line=line or problem,
        offers=await offers_of(visit),
        quota_link=quota_link,
        number_text=number_text,
    )


def _entity(visit: Visit, form: Mapping[str, str]) -> QuotaEntity:
    """Returns the entity of a form: names, and "" for any other. Raises ConfigError where there is none."""
    named: dict[str, str] = {}
    for field, part in PARTS:
        name, is_any = form.get(field, "").strip(), f"any-{field}" in form
        if len(name) > NAME_LENGTH_MAX or (name and is_any):
            raise ConfigError(visit.catalogue.text("quotas.both"))
        if name or is_any:
            named[part] = name
    if not named:
        raise ConfigError(visit.catalogue.text("quotas.nobody"))
    if "ip" in named and len(named) > 1:
        raise ConfigError(visit.catalogue.text("quotas.address_alone"))
    return QuotaEntity(**named)


def _changes(visit: Visit, known: Mapping[str, float]) -> list[QuotaStep]:
    """Returns what the form changes; an empty field is no limit."""
    changes = []
    for key in QUOTA_MEANINGS:
        if key not in visit.form:
            continue
        text = visit.form[key].strip()
        try:
            after = finite_number(text) if text else None
        except ValueError:
            raise ConfigError(visit.catalogue.text("quotas.no_number", name=key)) from None
        if after != known.get(key):
            changes.append(QuotaStep(key, known.get(key), after))
    return changes


PAGES: Final = (
    ConsolePage(path="/people/quotas", show=show),
    ConsolePage(path="/people/quotas/change", show=show_change, act=change),
)
