"""The errors of the simulator."""

from __future__ import annotations

import asyncio


class HostCrashed(BaseException):
    """The host that makes this call is dead.

    Not an Exception: no handler of the code under test may mistake its own death for an error to deal with.
    """


class SimulationStuckError(Exception):
    """The simulated world cannot or may not go on; the message lists the tasks that were still waiting."""


class DeadlockError(SimulationStuckError):
    """Nothing is ready and nothing is scheduled, so no waiting task can ever go on."""


class OutOfTimeError(SimulationStuckError):
    """The run used up its virtual seconds or its steps."""


class DivergenceError(Exception):
    """Two runs of one seed differed: something reads a clock, a hash order or a chance that the seed
    does not rule.
    """


class ViolationError(Exception):
    """A checker saw a promise broken."""


def describe_tasks(tasks: list[asyncio.Task[object]]) -> str:
    """Returns one line for each task: its name and the line at which it waits."""
    lines = []
    for task in sorted(tasks, key=lambda task: task.get_name()):
        frames = task.get_stack()
        place = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "not started"
        lines.append(f"  {task.get_name()} at {place}")
    return "\n".join(lines) or "  (no task)"
