"""Audit events as text, and what a search among them means. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

AuditDocument = dict[str, Any]
"""An event as a sink has it: a JSON object."""


def audit_document(line: str | bytes) -> AuditDocument | None:
    """Returns the event of a line; None for what is no JSON object, such as a line that was cut."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def fits(event: AuditDocument, wanted: Mapping[str, str | None]) -> bool:
    """Tells whether an event matches all patterns, with the wildcards * and ?; None is no pattern."""
    for key, pattern in wanted.items():
        if pattern is None:
            continue
        values = event.get("resources", []) if key == "resource" else [event.get(key, "")]
        if not isinstance(values, list) or not any(fnmatchcase(str(value), pattern) for value in values):
            return False
    return True
