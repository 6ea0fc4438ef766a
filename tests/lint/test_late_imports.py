"""The rule against imports inside functions finds them, and leaves the loader's form alone."""

import pytest
from tests.lint.late_imports import check

LATE = [
    "def f():\n    import json",
    "async def f():\n    from json import loads",
    "class A:\n    def f(self):\n        if self:\n            from . import other",
    "import importlib\nmodule = importlib.import_module('json')",
    "module = __import__('json')",
    "json = lazy('json')",
    "if TYPE_CHECKING:\n    import json\nelse:\n    json = lazy('pickle')",
    "if TYPE_CHECKING:\n    from a import b\nelse:\n    c = lazy('a.b')",
    "def f():\n    import json  # late-import:",
]


@pytest.mark.parametrize("source", LATE)
def test_a_late_import_is_found(source: str) -> None:
    assert len(check(source)) == 1


FINE = [
    "import json",
    "try:\n    import json\nexcept ImportError:\n    json = None",
    "if TYPE_CHECKING:\n    import json\n    from a import b\nelse:\n    json = lazy('json')\n    b = lazy('a.b')",
    "if TYPE_CHECKING:\n    from a import b as c\nelse:\n    c = lazy('a.b')",
    "def f():\n    import json  # late-import: a reason",
    "def f():\n    # late-import: a reason\n    import json",
]


@pytest.mark.parametrize("source", FINE)
def test_what_is_no_late_import_is_left_alone(source: str) -> None:
    assert check(source) == []
