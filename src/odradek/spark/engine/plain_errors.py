"""Errors that a user reads: one line at the top of Spark's own error, in place of a Python traceback.

PySpark sends an exception to Spark as text, with its traceback unless the environment has SPARK_HIDE_TRACEBACK, and then
ends the process. Our own errors explain what is wrong and what to do; where in Odradek that was noticed helps no one. Any other
exception is a bug, and keeps its traceback.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.model.errors import OdradekError


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """A context for code that Spark calls: an `OdradekError` that leaves the block, and ends the process, has no traceback."""
    try:
        yield
    except OdradekError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
