"""The part of docs/compatibility.md that compares us with a release of Kafka: what is the same, what differs, and why."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.contract.parity.comparison import Difference, differences, reason_for
from tests.contract.parity.reasons import REASONS, REASONS_OF_UNSUPPORTED, Reason
from tests.contract.parity.recording import Facts, recorded

PAGE: Final = Path(__file__).parents[3] / "docs" / "compatibility.md"
HEADING: Final = "## Beside Kafka"
_SECTIONS: Final = {
    "api": "APIs",
    "message": "messages and their fields",
    "error": "error codes",
    "broker setting": "settings of brokers",
    "topic setting": "settings of topics",
    "group setting": "settings of groups",
    "client-metrics setting": "settings of clients' metrics",
    "admin": "operations of the admin client",
    "feature": "features",
}
_NAMES_MAX: Final = 8


def parity_lines() -> list[str]:
    """Returns the lines of the part, from its heading on."""
    version, facts = recorded()
    differing = differences(facts)
    by_reason: dict[Reason, list[Difference]] = {}
    for difference in differing:
        reason = reason_for(difference)
        assert reason is not None, f"{difference} has no reason"
        by_reason.setdefault(reason, []).append(difference)
    ordered = [reason for reason in (*REASONS, *REASONS_OF_UNSUPPORTED) if reason in by_reason]
    purposeful = [reason for reason in ordered if not reason.is_gap]
    gaps = [reason for reason in ordered if reason.is_gap]
    return [
        f"{HEADING} {version}",
        "",
        "Declarations and tables of this broker beside those in Kafka's jars: versions, fields, defaults, nullability and tags",
        "of messages, error codes, settings with type, default, bounds and whether a running broker takes a new value. Written",
        "by `python -m tests.contract.parity --page`; `--newest` compares with the newest release that Maven has.",
        "`tests/differential` compares answers, and [differences.md](differences.md) lists behaviour that differs.",
        "",
        "| | in Kafka | the same here | differ in part | absent or without effect |",
        "|---|---:|---:|---:|---:|",
        *(_counts(section, title, facts, differing) for section, title in _SECTIONS.items()),
        "",
        "### What differs on purpose",
        "",
        *_table(purposeful, by_reason),
        "",
        "### What is not there yet",
        "",
        *(_table(gaps, by_reason) if gaps else ["Nothing."]),
    ]


def write() -> None:
    """Replaces the part in docs/compatibility.md."""
    head, _, _ = PAGE.read_text(encoding="utf-8").partition(f"\n{HEADING}")
    PAGE.write_text(head.rstrip("\n") + "\n\n" + "\n".join(parity_lines()) + "\n", encoding="utf-8")


def _counts(section: str, title: str, facts: Facts, differing: Iterable[Difference]) -> str:
    absent: set[str] = set()
    partly: set[str] = set()
    for difference in differing:
        if difference.section == section and difference.kafka != "absent":
            name = difference.place.removeprefix(f"{section}/").partition(": ")[0]
            (partly if ": " in difference.place else absent).add(name)
    total = len(facts[section])
    if section == "message":  # an absent message stands for its fields
        hidden = sum(1 for path in facts[section] if path.partition(".")[0] in absent)
        return f"| {title} | {total} | {total - hidden - len(partly)} | {len(partly)} | {hidden} |"
    return f"| {title} | {total} | {total - len(absent) - len(partly)} | {len(partly)} | {len(absent)} |"


def _table(reasons: Iterable[Reason], by_reason: dict[Reason, list[Difference]]) -> list[str]:
    return [
        "| what | where | why |",
        "|---|---|---|",
        *(f"| {reason.title} | {_names(by_reason[reason])} | {reason.why} |" for reason in reasons),
    ]


def _names(differing: list[Difference]) -> str:
    names = list(
        dict.fromkeys(
            difference.place.partition("/")[2].partition(": ")[0]
            for difference in differing
            if difference.section != "message" or not any(d.section == "api" for d in differing)
        )
    )
    if len(names) <= _NAMES_MAX:
        return ", ".join(f"`{name}`" for name in names)
    return (
        ", ".join(f"`{name}`" for name in names[: _NAMES_MAX - 2])
        + f" and {len(names) - _NAMES_MAX + 2} more"
    )
