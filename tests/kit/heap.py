"""The heap of a process with thousands of tests: the garbage collector's full looks at it take half a second."""

import gc


def put_aside() -> None:
    """Keeps the collector away from all that is there now, as `pytest_collection` in `tests/conftest.py` does for modules.

    For tests that need a small heap, and at the end of those whose code calls `gc.freeze` or `gc.unfreeze`: full collections
    would walk through all modules and tests from then on. No test calls `gc.unfreeze` itself: the collection here would be such
    a walk. To be called where no broker runs: a cycle that is put aside is never freed.
    """
    gc.collect()
    gc.freeze()
