"""The upgrade of a pipeline: a form, its dry run, and the mode that a user chooses after it."""

from __future__ import annotations

import asyncio
import shlex
from typing import Final

from starlette.responses import Response

from odradek.client.network.errors import explain
from odradek.console.model.pipeline_upgrades import (
    ARGS_CHARS_MAX,
    LOADING_S,
    UpgradePlan,
    carried_out,
    planned_upgrade,
)
from odradek.console.pages.pipelines import pipeline_path, within
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
from odradek.model.java_numbers import is_digits
from odradek.pipelines.document import PipelineDocument
from odradek.pipelines.upgrade import UpgradeMode

PATH: Final = "/pipelines/upgrade"
READING_WAIT_S: Final = 4.0
"""For each of two questions to the brokers before anything is loaded."""
LOADING_WAIT_S: Final = LOADING_S + 1
CHANGE_WAIT_S: Final = 25.0
_LAG_DIGITS_MAX: Final = 12


async def show(visit: Visit) -> Response:
    """Shows the form of an upgrade."""
    return await _form_page(visit, await _document(visit))


async def upgrade(visit: Visit) -> Response:
    """Shows the dry run; with a mode, makes the version that the dry run showed."""
    document = await _document(visit)
    upgrades = visit.console.upgrades
    file = visit.form.get("file", "")
    try:
        args, swap_lag = _arguments(visit), _swap_lag(visit)
        mode = _mode(visit)
        program = await within(visit, upgrades.program(document, file, args, by=_user(visit)), LOADING_WAIT_S)
        pipelines = visit.model.pipelines
        if mode is None:
            plan = await within(
                visit,
                pipelines.change(lambda store: planned_upgrade(store, document.name, program)),
                CHANGE_WAIT_S,
            )
            return await _form_page(visit, document, plan=plan)
        by, now_ms = f"{_user(visit)} in the console", visit.console.clock.wall_ms()
        work = pipelines.change(
            lambda store: carried_out(
                store,
                visit.form.get("plan", ""),
                document.name,
                program,
                mode,
                by=by,
                now_ms=now_ms,
                swap_lag=swap_lag,
            )
        )
        try:
            await within(visit, work, CHANGE_WAIT_S)
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            line = visit.catalogue.text("upgrade.may_follow", reason=explain(error))
            return await _form_page(visit, document, line, 400)
    except OdradekError as error:
        return await _form_page(visit, document, explain(error), 400)
    return visit.redirect(pipeline_path(document.name), "pipeline_upgraded")


def _user(visit: Visit) -> str:
    return visit.principal or "anyone"


async def _document(visit: Visit) -> PipelineDocument:
    if not visit.console.upgrades.is_offered:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, visit.catalogue.text("upgrade.not_offered"))
    reading = await within(visit, visit.model.pipelines.read(), READING_WAIT_S)
    if not visit.console.options.read_only:
        await within(visit, visit.model.pipelines.check_may_write(), READING_WAIT_S)
    return reading.of(visit.query.get("name", ""))[0].document


def _arguments(visit: Visit) -> tuple[str, ...]:
    """Returns the program's arguments, split as a shell does. Raises ConfigError."""
    text = visit.form.get("args", "")
    if len(text) > ARGS_CHARS_MAX:
        raise ConfigError(visit.catalogue.text("upgrade.args_too_long", count=ARGS_CHARS_MAX))
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(visit.catalogue.text("upgrade.args_unclear", reason=str(error))) from None


def _mode(visit: Visit) -> UpgradeMode | None:
    try:
        return UpgradeMode(visit.form["mode"]) if "mode" in visit.form else None
    except ValueError:
        raise ConfigError(visit.catalogue.text("upgrade.no_such_mode")) from None


def _swap_lag(visit: Visit) -> int | None:
    text = visit.form.get("swap_lag", "").strip()
    if not text:
        return None
    if not is_digits(text) or len(text) > _LAG_DIGITS_MAX:
        raise ConfigError(visit.catalogue.text("upgrade.no_number"))
    return int(text)


async def _form_page(
    visit: Visit,
    document: PipelineDocument,
    line: str = "",
    status: int = 200,
    *,
    plan: UpgradePlan | None = None,
) -> Response:
    current = document.current
    return visit.render(
        "pipelines/upgrade.html",
        status,
        active="pipelines",
        document=document,
        files=await asyncio.to_thread(visit.console.upgrades.files),
        file=visit.form.get("file", current.program),
        args=visit.form.get("args", shlex.join(current.args)),
        swap_lag=visit.form.get("swap_lag", str(document.swap_lag)),
        plan=plan,
        line=line,
        pipeline_path=pipeline_path,
    )


PAGES: Final = (ConsolePage(path=PATH, show=show, act=upgrade),)
