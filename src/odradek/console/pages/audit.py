"""The audit, searched: who did what, the newest first, and how far the search looked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from odradek.client.network.errors import explain
from odradek.console.model.audit_reading import KINDS, LOOKS, OUTCOMES, AuditFindings, search_audit
from odradek.console.pages.group_changes import moment_of
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ConfigError, OdradekError
from odradek.security.audit import AUDIT_TOPIC

PATTERNS: Final = ("principal", "api", "resource", "host")
SEARCH_S: Final = 20.0
_LENGTH_MAX: Final = 500


async def show(visit: Visit) -> Response:
    """Shows the newest events that fit the form."""
    await visit.wait_until_read()
    topic = visit.snapshot.topics.get(AUDIT_TOPIC)
    looks = _looks(visit)
    findings: AuditFindings | None = None
    line = "" if topic is not None else visit.catalogue.text("audit.absent", topic=AUDIT_TOPIC)
    if topic is not None:
        try:
            since = visit.query.get("since", "").strip()
            since_ms = moment_of(visit, since[:50]) if since else 0
            wanted = {name: _pattern(visit, name) for name in (*PATTERNS, "kind", "outcome")}
            if (
                wanted["resource"] is not None
                and "*" not in wanted["resource"]
                and ":" not in wanted["resource"]
            ):
                wanted["resource"] = f"*:{wanted['resource']}"
            search = search_audit(
                visit.model.reader, topic.partitions, wanted, since_ms=since_ms, looks_at=LOOKS[looks]
            )
            findings = await visit.run(_within(search))
        except TimeoutError:
            line = visit.catalogue.text("audit.slow", time=visit.catalogue.seconds(SEARCH_S))
        except OdradekError as error:
            line = explain(error)
    return visit.render(
        "audit.html",
        active="people",
        tab="audit",
        form=visit.query,
        line=line,
        kinds=KINDS,
        outcomes=OUTCOMES,
        findings=findings,
        rows=[] if findings is None else [_row(event) for event in findings.events],
        further=looks + 1 if looks + 1 < len(LOOKS) else None,
        looked_since=_time(findings.since_ms) if findings is not None and findings.since_ms >= 0 else "",
    )


async def _within(search: Awaitable[AuditFindings]) -> AuditFindings:
    async with asyncio.timeout(SEARCH_S):
        return await search


def _looks(visit: Visit) -> int:
    text = visit.query.get("further", "")
    return int(text) if text in {str(number) for number in range(len(LOOKS))} else 0


def _pattern(visit: Visit, name: str) -> str | None:
    """Returns the pattern of a field; a name without * and ? is meant whole. A principal may be written without its type."""
    text = visit.query.get(name, "").strip()
    if not text:
        return None
    if len(text) > _LENGTH_MAX or text.count("*") > 5:
        raise ConfigError(visit.catalogue.text("audit.pattern"))
    if name == "principal" and ":" not in text and not text.startswith("*"):
        return f"User:{text}"
    return text


def _row(event: Mapping[str, object]) -> dict[str, str]:
    """Returns an event as texts: whatever another program wrote there."""
    at_ms = event.get("time_ms")
    names = ("kind", "outcome", "principal", "host", "api", "operation", "detail", "client", "broker")
    row = {name: str(event.get(name, "") or "") for name in names}
    row["time"] = _time(at_ms) if isinstance(at_ms, int | float) else ""
    for name in ("resources", "errors"):
        values = event.get(name)
        row[name] = ", ".join(map(str, values)) if isinstance(values, list) else ""
    if event.get("count"):
        row["detail"] = f"{row['detail']} ({event['count']})".strip()
    return row


def _time(at_ms: float) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


PAGES: Final = (ConsolePage(path="/people/audit", show=show),)
