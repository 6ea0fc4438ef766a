"""Runs scripts against a broker, and compares what it answered with what Kafka answered when that was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.differential.allowed import ALLOWED, NOT_THERE, Allowed
from tests.differential.asker import Asker

HERE = Path(__file__).parent
ANSWERS = HERE / "answers" / "kafka-4.4.0"
SCRIPTS = sorted(path.stem for path in (HERE / "scripts").glob("*.py"))

SETTINGS = {
    "log.retention.hours": "168",  # in the file that Kafka ships, as are the next ones
    "log.segment.bytes": "1073741824",
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
"""What both brokers are started with, beside their defaults."""

Steps = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    where: str
    kafka: Any
    here: Any

    def __str__(self) -> str:
        return f"{self.where}\n    Kafka   {_short(self.kafka)}\n    here    {_short(self.here)}"


def run(script: str, bootstrap: str) -> Steps:
    """What the broker answered to a script. Raises NotServedError when it lacks an API that the script needs."""
    host, port = bootstrap.rsplit(":", 1)
    peer = Asker((host, int(port)), script)
    try:
        import_module(f"tests.differential.scripts.{script}").script(peer)
    except AttributeError as failed:
        if "NoneType" not in str(failed):
            raise
        # An answer lacks what the script needs to go on: that is a difference too.
        peer.steps.append({"step": f"the script stopped: {failed}", "answer": None})
    finally:
        peer.close()
    names = [step["step"] for step in peer.steps]
    assert len(names) == len(set(names)), f"steps of {script} share a name"
    return peer.steps


def settings_of(script: str) -> dict[str, str]:
    """Returns the settings that its broker is started with; a script with settings of its own needs a broker of its own."""
    return {**SETTINGS, **_own_settings(script)}


def has_own_broker(script: str) -> bool:
    return bool(_own_settings(script))


def _own_settings(script: str) -> dict[str, str]:
    settings: dict[str, str] = getattr(import_module(f"tests.differential.scripts.{script}"), "SETTINGS", {})
    return settings


def recorded(script: str) -> Steps:
    steps: Steps = json.loads((ANSWERS / f"{script}.json").read_text())
    return steps


def record(script: str, steps: Steps) -> None:
    ANSWERS.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(step) for step in steps)
    (ANSWERS / f"{script}.json").write_text(f"[\n{lines}\n]\n")


def compare(script: str, kafka: Steps, here: Steps) -> Iterator[Difference]:
    """Returns what differs, one field at a time, at places like `groups/join: members.<id 1>.error_code`."""
    ours = {step["step"]: step for step in here}
    for step in kafka:
        place = f"{script}/{step['step']}: "
        mine = ours.pop(step["step"], {})
        yield from _differences(place, step["answer"], mine.get("answer", NOT_THERE))
    for name in ours:
        yield Difference(where=f"{script}/{name}: ", kafka=NOT_THERE, here=ours[name]["answer"])


def _differences(where: str, kafka: Any, here: Any) -> Iterator[Difference]:
    if isinstance(kafka, dict) and isinstance(here, dict):
        for key in {**kafka, **here}:
            deeper = f"{where}{'' if where.endswith(': ') else '.'}{key}"
            yield from _differences(deeper, kafka.get(key, NOT_THERE), here.get(key, NOT_THERE))
    elif isinstance(kafka, list) and isinstance(here, list) and len(kafka) == len(here):
        for index, (kafkas, other) in enumerate(zip(kafka, here, strict=True)):
            yield from _differences(f"{where}[{index}]", kafkas, other)
    elif kafka != here:
        yield Difference(where=where, kafka=kafka, here=here)


def allowance(difference: Difference) -> Allowed | None:
    """Returns the line of the table that allows a difference."""
    return next((allowed for allowed in ALLOWED if allowed.fits(difference)), None)


def allowances_of(script: str) -> list[Allowed]:
    """Returns the lines of the table that name this script first."""
    return [allowed for allowed in ALLOWED if allowed.script == script]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 400 else f"{text[:400]}..."
