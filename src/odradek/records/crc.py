"""CRC32C over any buffer, without copying it.

`import crc32c` costs 40 ms, nearly all of it `importlib.metadata` looking up a version string. Its compiled
half needs none of that, so it is loaded by itself where it can be found, and through the front door
otherwise.
"""

from __future__ import annotations

import importlib.util
import os.path
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType
from typing import cast

from odradek.model.lazy import lazy
from odradek.runtime.ports import Buffer

_PACKAGE = "crc32c"
_MODULE = "crc32c._crc32c"


def _load_compiled_half() -> ModuleType | None:
    """Returns the extension module inside the package, or None when the package is laid out differently."""
    if _MODULE in sys.modules:
        return sys.modules[_MODULE]
    package = PathFinder.find_spec(_PACKAGE)
    if package is None or package.origin is None:
        return None
    spec = PathFinder.find_spec(_MODULE, [os.path.dirname(package.origin)])
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_MODULE] = module
    return module


def _load() -> Callable[[Buffer], int]:
    try:
        function = getattr(_load_compiled_half(), "crc32c", None)
    except (ImportError, OSError):
        function = None
    if function is None:
        function = lazy(_PACKAGE).crc32c
    return cast(Callable[[Buffer], int], function)


crc32c: Callable[[Buffer], int] = _load()
"""CRC32C (Castagnoli) of a buffer, as an unsigned 32-bit number."""
