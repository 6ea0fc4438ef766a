"""Plays an incident of `examples/incidents` in a process of its own, and writes what was seen as JSON.

`python recorded_play.py MODULE CLASS FILE`. The document has `before`, `first` and `second`, the scrapes of each metrics
listener (null for one that does not answer): the last two are `apart_s` seconds apart, while the incident lasts. `steps` has
the output of each command.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

EXAMPLES: Final = Path(__file__).parents[3] / "examples" / "incidents"
APART_S: Final = 2.0


def recorded(module: str, name: str) -> dict[str, Any]:
    sys.path.insert(0, str(EXAMPLES))
    stage_module = importlib.import_module("stage")
    incident = getattr(importlib.import_module(module), name)()
    with stage_module.Stage(incident) as stage:
        before = scrapes(stage)
        incident.make(stage)
        first, began = scrapes(stage), time.monotonic()
        time.sleep(APART_S)
        second, apart_s = scrapes(stage), time.monotonic() - began
        steps = [played(stage, step) for step in incident.steps(stage)]
        steps += [played(stage, step) for step in incident.mend(stage)]
        stage.until(lambda: incident.is_over(stage), "it is over")
    return {
        "alert": incident.alert,
        "before": before,
        "first": first,
        "second": second,
        "apart_s": apart_s,
        "steps": steps,
    }


def scrapes(stage: Any) -> list[list[tuple[str, str, float]] | None]:
    return [
        None if samples is None else [(name, labels, value) for (name, labels), value in samples.items()]
        for samples in stage.scraped()
    ]


def played(stage: Any, step: Any) -> dict[str, Any]:
    return {"command": step.command, "telling": step.telling, "output": stage.odradek(*step.command)}


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(recorded(*sys.argv[1:3])))
