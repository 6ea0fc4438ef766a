"""What tests of stacks need of the process that they run in."""

from __future__ import annotations

import sys
import threading
from collections import Counter

import pytest

_SHOWN_MAX = 100
"""`faulthandler` writes the stacks of so many threads, the newest ones."""


@pytest.fixture
def few_threads() -> None:
    """Fails at once where earlier tests have left so many threads that a stack would not be among those that are written."""
    count = len(sys._current_frames())  # also threads that no Python code has started
    names = Counter(thread.name.rstrip("0123456789-_") for thread in threading.enumerate())
    assert count < _SHOWN_MAX, (
        f"earlier tests in this process have left {count} threads: {names.most_common()}"
    )
