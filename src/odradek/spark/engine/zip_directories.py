"""Memory that Python keeps of the zip files that Spark has it import PySpark from.

Each package in a zip has an importer of its own. PySpark invalidates the caches of all of them as a process starts, and then,
in CPython 3.11, each reads the directory of its file again, and keeps it: 17 MB with PySpark's 1,500 files, in the process that
plans a stream. One copy for each file is enough; an importer whose caches are invalidated again gets its own, as before.
"""

from __future__ import annotations

import sys
import zipimport
from collections.abc import Iterable


def share_zip_directories(importers: Iterable[object] | None = None) -> None:
    """Leaves one directory of each file in memory; None: of all files that this process imports from.

    Where importers keep no directory (in later versions of CPython) there is nothing to do.
    """
    directories: dict[str, object] = {}
    for importer in list(sys.path_importer_cache.values()) if importers is None else importers:
        directory = getattr(importer, "_files", None)
        if isinstance(importer, zipimport.zipimporter) and isinstance(directory, dict):
            # what was read later is together, in memory that can be given back
            first = directories.setdefault(importer.archive, directory)
            if first is not directory and first == directory:
                importer._files = first  # type: ignore[attr-defined]
    cache = getattr(zipimport, "_zip_directory_cache", {})
    cache |= {archive: first for archive, first in directories.items() if cache.get(archive) == first}
