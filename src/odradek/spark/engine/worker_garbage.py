"""Limits what Python's garbage collector walks through in Spark's Python processes.

Spark's daemon collects garbage after each task, in the process that ran it, and so after each call of its planners. With
PySpark, pandas, Arrow and this package loaded that takes 30 to 60 ms of CPU, many times what a small micro-batch needs, and the
next task waits for it. Modules are no garbage: what was there when a task begins is left out of later collections.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sized
from dataclasses import dataclass


@dataclass(slots=True)
class LoadedModules:
    """The modules of this process, as far as the collector no longer looks at them.

    `freeze` has the collector leave out all objects that exist. Call `leave_out` as a task begins: Spark has collected garbage
    just before, so what is left out is in use.
    """

    modules: Sized
    freeze: Callable[[], None]
    process: Callable[[], int] = os.getpid
    _left_out: tuple[int, int] = (0, 0)
    """The process that froze its objects last, and how many modules were loaded then."""

    def leave_out(self) -> None:
        """Freezes all objects if modules were loaded since the last call. Objects that tasks make later are collected."""
        state = self.process(), len(self.modules)
        if state != self._left_out:
            self.freeze()
            self._left_out = state


loaded_modules = LoadedModules(sys.modules, gc.freeze)
"""The modules of this process."""
