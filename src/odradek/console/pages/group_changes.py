"""What changes groups: offsets set with a preview of what is read again, and a group deleted by its name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from odradek.client.groups.offset_target import Target
from odradek.client.network.errors import explain
from odradek.console.model.resets import ResetPlan, parse_plan_line, planned
from odradek.console.pages.groups import group_link, known_group
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.java_numbers import is_digits
from odradek.model.safe_text import safe_line

CALL_S: Final = 15.0
TARGETS: Final = ("earliest", "latest", "time", "offset", "shift")
PLAN_ROWS: Final = 500
_OFFSET_DIGITS_MAX: Final = 18


async def show_reset(visit: Visit) -> Response:
    return await _reset_page(visit)


async def reset(visit: Visit) -> Response:
    """Shows what would be read again; with `sure`, sets the offsets that were shown."""
    group = await known_group(visit)
    try:
        if "sure" in visit.form:
            offsets = parse_plan_line(visit.form.get("plan", ""))
            await visit.run(visit.model.admin.alter_group_offsets(group.group_id, offsets, timeout_s=CALL_S))
            visit.model.groups.forget(group.group_id)
            await visit.run(visit.model.refresh_now("groups"))
            return visit.redirect(group_link(group.group_id), "offsets_set")
        topic = visit.form.get("topic", "")
        plan = await visit.run(
            planned(visit.model.admin, group.group_id, [topic] if topic else [], _target(visit))
        )
    except OdradekError as error:
        return await _reset_page(visit, explain(error), 400)
    return await _reset_page(visit, plan=plan)


async def _reset_page(
    visit: Visit, line: str = "", status: int = 200, *, plan: ResetPlan | None = None
) -> Response:
    group = await known_group(visit)
    return visit.render(
        "group_reset.html",
        status,
        active="groups",
        group=group,
        topics=sorted({row.partition.topic for row in group.partitions}),
        targets=TARGETS,
        form=visit.form,
        plan=plan,
        plan_rows=PLAN_ROWS,
        line=line,
        group_link=group_link,
    )


def _target(visit: Visit) -> Target:
    """Returns where the form wants the offsets. Raises ConfigError, which names the field."""
    kind, text = visit.form.get("target", ""), visit.form.get("value", "").strip()
    if kind in ("earliest", "latest"):
        return Target(word=kind)
    if kind == "time":
        return Target(timestamp_ms=moment_of(visit, text))
    digits = text.removeprefix("-") if kind == "shift" else text
    if not is_digits(digits) or len(digits) > _OFFSET_DIGITS_MAX:
        raise ConfigError(visit.catalogue.text("reset.not_a_number"))
    return Target(shift=int(text)) if kind == "shift" else Target(offset=int(text))


def moment_of(visit: Visit, text: str) -> int:
    """Returns the milliseconds of a time; UTC where it has no zone. Raises ConfigError."""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0, round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ConfigError(visit.catalogue.text("reset.not_a_time")) from None


async def show_delete(visit: Visit) -> Response:
    group = await known_group(visit)
    return visit.render("group_delete.html", active="groups", group=group, line="", group_link=group_link)


async def delete(visit: Visit) -> Response:
    """Deletes the group if its id was typed."""
    group = await known_group(visit)
    line = ""
    if visit.form.get("name", "") not in (group.group_id, safe_line(group.group_id)):
        line = visit.catalogue.text("group.name_differs")
    else:
        try:
            await visit.run(visit.model.admin.delete_groups([group.group_id], timeout_s=CALL_S))
        except OdradekError as error:
            line = explain(error)
    if line:
        return visit.render(
            "group_delete.html", 400, active="groups", group=group, line=line, group_link=group_link
        )
    visit.model.groups.forget(group.group_id)
    await visit.run(visit.model.refresh_now("groups"))
    return visit.redirect("/groups", "group_deleted")


PAGES: Final = (
    ConsolePage(path="/group/reset", show=show_reset, act=reset),
    ConsolePage(path="/group/delete", show=show_delete, act=delete),
)
