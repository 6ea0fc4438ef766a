"""What changes topics: create, delete, change a setting. Each has a step that shows what would happen."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from odradek.client.admin.types import ConfigEntry, ConfigResource, NewTopic
from odradek.client.network.errors import explain
from odradek.console.pages.topic import detail_of, inherited_text, known_topic, source_text
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.java_numbers import is_digits

CALL_S: Final = 15.0
_NUMBER_MAX: Final = 2**31 - 1


async def show_new(visit: Visit) -> Response:
    return _new(visit)


async def create(visit: Visit) -> Response:
    """Checks the topic on the cluster, and shows what it would be; with `sure`, creates it."""
    name = visit.form.get("name", "").strip()
    try:
        topic = NewTopic(
            name, _count(visit, "partitions"), _count(visit, "replication"), configs=_configs(visit)
        )
        is_sure = "sure" in visit.form
        created = await visit.run(
            visit.model.admin.create_topics([topic], validate_only=not is_sure, timeout_s=CALL_S)
        )
    except KafkaError as error:
        return _new(visit, explain(error), 400)
    if not is_sure:
        return _new(visit, preview=created[name])
    await visit.run(visit.model.refresh_now("topics"))
    return visit.redirect("/topics?search=" + name, "topic_created")


def _new(visit: Visit, line: str = "", status: int = 200, preview: object = None) -> Response:
    return visit.render(
        "topic_new.html", status, active="topics", form=visit.form, line=line, preview=preview
    )


def _count(visit: Visit, field: str) -> int:
    """Returns the number of a field; -1, the broker's default, where it is empty."""
    text = visit.form.get(field, "").strip()
    if not text:
        return -1
    if not is_digits(text) or not 0 < int(text[:12]) <= _NUMBER_MAX:
        line = visit.catalogue.text("error.number", field=visit.catalogue.text(f"topic.{field}"))
        raise KafkaError(ErrorCode.INVALID_REQUEST, line)
    return int(text)


def _configs(visit: Visit) -> dict[str, str]:
    """Returns the settings of the form, a line each: name=value."""
    configs = {}
    for line in visit.form.get("settings", "").splitlines():
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip():
            raise KafkaError(ErrorCode.INVALID_CONFIG, visit.catalogue.text("error.setting_line", line=line))
        configs[name.strip()] = value.strip()
    return configs


async def show_delete(visit: Visit) -> Response:
    topic = await known_topic(visit)
    return visit.render("topic_delete.html", active="topics", topic=topic, line="")


async def delete(visit: Visit) -> Response:
    """Deletes the topic if its name was typed."""
    topic = await known_topic(visit)
    if visit.form.get("name", "") != topic.name:
        line = visit.catalogue.text("topic.name_differs")
        return visit.render("topic_delete.html", 400, active="topics", topic=topic, line=line)
    await visit.run(visit.model.admin.delete_topics([topic.name], timeout_s=CALL_S))
    visit.model.forget_detail(topic.name)
    await visit.run(visit.model.refresh_now("topics"))
    return visit.redirect("/topics", "topic_deleted")


async def show_setting(visit: Visit) -> Response:
    entry = await _setting(visit)
    return _setting_page(visit, entry, entry.value or "")


async def change_setting(visit: Visit) -> Response:
    """Checks a new value on the cluster, and shows it next to the old one; with `sure`, sets it."""
    entry = await _setting(visit)
    name, value = visit.request.path_params["name"], visit.form.get("value", "")
    change = None if "default" in visit.form else value
    is_sure = "sure" in visit.form
    changes = {ConfigResource.topic(name): {entry.name: change}}
    try:
        await visit.run(visit.model.admin.alter_configs(changes, validate_only=not is_sure, timeout_s=CALL_S))
    except KafkaError as error:
        return _setting_page(visit, entry, value, explain(error), 400)
    if not is_sure:
        return _setting_page(visit, entry, value, is_preview=True, change=change)
    visit.model.forget_detail(name)
    return visit.redirect(f"/topics/{name}?notice=setting_changed#settings")


async def _setting(visit: Visit) -> ConfigEntry:
    topic = await known_topic(visit)
    detail = await detail_of(visit, topic.name)
    entry = detail.settings.get(visit.request.path_params["setting"])
    if entry is None:
        line = detail.problems[0] if detail.problems else visit.catalogue.text("setting.unknown")
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, line)
    return entry


def _setting_page(
    visit: Visit,
    entry: ConfigEntry,
    value: str,
    line: str = "",
    status: int = 200,
    *,
    is_preview: bool = False,
    change: str | None = None,
) -> Response:
    return visit.render(
        "topic_setting.html",
        status,
        active="topics",
        name=visit.request.path_params["name"],
        entry=entry,
        source=source_text(visit, entry),
        inherited=inherited_text(visit, entry),
        value=value,
        line=line,
        is_preview=is_preview,
        change=change,
    )


PAGES: Final = (
    ConsolePage(path="/topics/new", show=show_new, act=create),
    ConsolePage(path="/topics/{name}/delete", show=show_delete, act=delete),
    ConsolePage(path="/topics/{name}/settings/{setting}", show=show_setting, act=change_setting),
)
