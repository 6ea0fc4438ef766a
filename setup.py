"""Builds what is compiled, the record engine and the threads that sync files; everything else is in pyproject.toml.

The extension is optional: without Cython or a C compiler the package still installs and uses its plain
twin. `ODRADEK_NO_EXTENSION=1` leaves it out on purpose.
"""

import os
import sys

from setuptools import Extension, setup

PARTS = ("", "_headers", "_placing", "_memory", "_columns", "_cleaning")
RECORD_MODULES = tuple(f"odradek.records._fast{part}" for part in PARTS)
LINUX_MODULES = ("odradek.runtime._sync_threads",)
"""Built on Linux alone: they use its system calls."""
MODULES = RECORD_MODULES + (LINUX_MODULES if sys.platform == "linux" else ())


def extensions() -> list[Extension]:
    if os.environ.get("ODRADEK_NO_EXTENSION", "") not in ("", "0"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    flags = [] if sys.platform == "win32" else ["-O3"]
    modules = [
        Extension(name, [f"src/{name.replace('.', '/')}.py"], extra_compile_args=flags, optional=True)
        for name in MODULES
    ]
    built: list[Extension] = cythonize(modules, build_dir="build/cython", include_path=["src"])
    for extension in built:
        extension.optional = True
    return built


setup(ext_modules=extensions())
