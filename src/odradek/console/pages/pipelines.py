"""The pipelines of the cluster: a list, and one with its graph, its lag, its versions, its log, and what changes it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine
from typing import Final, TypeVar
from urllib.parse import urlencode

from starlette.responses import Response

from odradek.console.model.pipeline_figures import PipelineProgress, topics_of
from odradek.console.model.pipeline_reading import PipelineReading
from odradek.console.model.snapshot import UNKNOWN, ModelSnapshot
from odradek.console.pages.record_forms import time_text
from odradek.console.pages.topics import page_number, pages_of
from odradek.console.pictures.flow_graph import FlowGraph
from odradek.console.pictures.pipeline_graph import pipeline_graph
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ErrorCode, KafkaError
from odradek.pipelines import upgrading
from odradek.pipelines.carrying import state_topics
from odradek.pipelines.document import DESIRED_BY_VERB, Desired, PipelineDocument
from odradek.pipelines.outline import ProgramKind
from odradek.pipelines.store import PipelineStore

PAGE_ROWS: Final = 50
LAG_ROWS: Final = 200
LOG_LINES: Final = 100
ROWS_MAX: Final = 100
"""The versions, lines of history, settings and operators of a page; a document may be written by anyone with the right to."""
TEXT_CHARS_MAX: Final = 1_000
WAIT_S: Final = 12.0
CHANGE_WAIT_S: Final = 25.0
_TENTHS_BELOW: Final = 10
_CANDIDATE_VERBS: Final = {"swap": upgrading.swap, "abandon": upgrading.abandon}
_CONFIRMED: Final = frozenset({"stop", "swap", "abandon"})
"""These are done after a second press of a button."""
T = TypeVar("T")


async def show_all(visit: Visit) -> Response:
    """Shows one page of the pipelines, those that fail first."""
    reading = await within(visit, visit.model.pipelines.read(), WAIT_S)
    search = visit.query.get("search", "").strip()
    words = search.lower().split()
    matching = [run for run in reading.runs if all(word in run.key.lower() for word in words)]
    page = page_number(visit.query.get("page", ""), len(matching), PAGE_ROWS)
    return visit.render(
        "pipelines/list.html",
        active="pipelines",
        reading=reading,
        rows=matching[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
        matching=len(matching),
        page=page,
        pages=pages_of(len(matching), PAGE_ROWS),
        search=search,
        bootstrap=visit.console.options.bootstrap,
        **_values(visit, reading),
    )


async def show(visit: Visit) -> Response:
    """Shows one pipeline."""
    reading = await within(visit, visit.model.pipelines.read(), WAIT_S)
    return _page(visit, reading, visit.query.get("name", ""))


async def change(visit: Visit) -> Response:
    """Starts, stops, pauses or resumes a pipeline; swaps to a version that was rebuilt, or abandons it."""
    name, verb = visit.form.get("name", ""), visit.form.get("verb", "")
    if verb not in DESIRED_BY_VERB and verb not in _CANDIDATE_VERBS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no action {verb!r:.40}")
    if verb in _CONFIRMED and visit.form.get("sure") != "1":
        reading = await within(visit, visit.model.pipelines.read(), WAIT_S)
        return _page(visit, reading, name, confirms=verb)
    by = f"{visit.principal or 'anyone'} in the console"
    now_ms = visit.console.clock.wall_ms()

    def work(store: PipelineStore) -> PipelineDocument:
        if verb in DESIRED_BY_VERB:
            return store.set_desired(name, verb, by=by, now_ms=now_ms)
        return _CANDIDATE_VERBS[verb](store, name, by=by, now_ms=now_ms)

    await within(visit, visit.model.pipelines.change(work), CHANGE_WAIT_S)
    return visit.redirect(pipeline_path(name), "pipeline_changed")


def _page(visit: Visit, reading: PipelineReading, name: str, *, confirms: str = "") -> Response:
    runs = reading.of(name)
    current = runs[0]
    lags = sorted(current.lags.items(), key=lambda pair: (-pair[1], pair[0]))
    positions = {} if current.status is None else current.status.positions
    return visit.render(
        "pipelines/pipeline.html",
        active="pipelines",
        reading=reading,
        runs=[(run, _graph(visit, run)) for run in runs],
        run=current,
        document=current.document,
        report=current.status,
        positions=positions,
        lags=lags[:LAG_ROWS],
        lags_left=max(0, len(lags) - LAG_ROWS),
        log=_log(visit, current),
        states=_states(current, visit.snapshot),
        verbs=_verbs(current.document),
        confirms=confirms,
        program=_short(shlex.join((current.document.current.program, *current.document.current.args))),
        offers_upgrade=visit.console.upgrades.is_offered,
        dry_run=shlex.join(("odradek", "pipeline", "upgrade", name, "NEW.py", "--dry-run")),
        **_values(visit, reading),
    )


def _values(visit: Visit, reading: PipelineReading) -> dict[str, object]:
    now_ms = visit.console.clock.wall_ms()
    return {
        "reading_age": max(0.0, (now_ms - reading.read_ms) / 1000),
        "rows_max": ROWS_MAX,
        "short": _short,
        "failure_text": lambda run: _failure_text(visit, run),
        "since": lambda at_ms: visit.catalogue.seconds(max(0.0, (now_ms - at_ms) / 1000)),
        "rate_text": lambda rate: _rate_text(visit, rate),
        "pipeline_path": pipeline_path,
        "time_text": time_text,
    }


def _failure_text(visit: Visit, run: PipelineProgress) -> str:
    """Returns why a run failed, except where the text may quote a masked record."""
    if run.status is None or run.status.failure is None:
        return ""
    return visit.error_text(_short(run.status.failure.text), _topics(run))


def _log(visit: Visit, run: PipelineProgress) -> list[str]:
    """Returns the last lines of a run's log; where they may quote a masked record, one line that tells why."""
    lines = [] if run.status is None else list(run.status.log)[-LOG_LINES:]
    shown = visit.error_text("", _topics(run))
    return [shown] if lines and shown else lines


def _topics(run: PipelineProgress) -> set[str] | None:
    """Returns the topics of a run; None where they are unknown."""
    reads, writes = topics_of(run.status)
    return (reads | writes) or None


def _verbs(document: PipelineDocument) -> list[str]:
    """Returns the actions to offer. A pipeline that runs can be started, too: after a failure it tries again at once."""
    offered = [verb for verb in DESIRED_BY_VERB if document.refusal(verb) is None]
    if document.desired is Desired.STOPPED:
        offered.remove("stop")
    if document.desired is Desired.PAUSED:
        offered = [verb for verb in offered if verb not in ("pause", "start")]
    return offered + (list(_CANDIDATE_VERBS) if document.candidate is not None else [])


def _states(run: PipelineProgress, snapshot: ModelSnapshot) -> list[dict[str, object]]:
    """Returns operators with state, with the bytes of the topic that holds it; UNKNOWN where no topic does."""
    outline = None if run.status is None else run.status.outline
    if outline is None:
        return []
    topics = {}
    if outline.kind is ProgramKind.STREAMS:
        topics = {(state.output, state.operator): state.topic for state in state_topics(outline)}
    return [
        {
            "output": output.name,
            "name": state.name,
            "kind": state.kind,
            "topic": topics.get((output.name, state.name), ""),
            "bytes": snapshot.sizes.get(topics.get((output.name, state.name), ""), UNKNOWN),
        }
        for output in outline.outputs
        for state in output.states
    ][:ROWS_MAX]


def _graph(visit: Visit, run: PipelineProgress) -> FlowGraph | None:
    return pipeline_graph(
        run,
        lambda rate: _rate_text(visit, rate),
        lambda lag: visit.catalogue.text("pipelines.lag_of", count=lag),
    )


def _short(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "…"


def _rate_text(visit: Visit, rate: float | None) -> str:
    """Returns records a second; a dash before two moments were seen."""
    if rate is None:
        return "–"
    number = f"{rate:.1f}" if 0 < rate < _TENTHS_BELOW else visit.catalogue.number(round(rate))
    return visit.catalogue.text("pipelines.per_second", rate=number)


def pipeline_path(name: str, page: str = "pipeline") -> str:
    """Returns the path of a pipeline's page, or of its upgrade."""
    return f"/pipelines/{page}?{urlencode({'name': name})}"


async def within(visit: Visit, work: Coroutine[object, None, T], limit_s: float) -> T:
    """Runs a call of the model, and waits for so long. Raises KafkaError after that."""
    try:
        async with asyncio.timeout(limit_s):
            return await visit.run(work)
    except TimeoutError:
        line = visit.catalogue.text("pipelines.slow", time=visit.catalogue.seconds(limit_s))
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, line) from None


PAGES: Final = (
    ConsolePage(path="/pipelines", show=show_all),
    ConsolePage(path="/pipelines/pipeline", show=show, act=change),
)
