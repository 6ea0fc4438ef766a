"""Directories of persistent queries' checkpoints on this machine: each version that was carried over has one of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class QueryCheckpoints:
    """The checkpoint directories of a service's queries.

    `directory`: of a service. All that is in it may be lost, so what no query goes on with is removed.
    """

    directory: Path

    def directory_of(self, query_id: str, carried_at: int | None) -> Path:
        """Returns a query's checkpoint. `carried_at`: the number of the command that carried it over last."""
        return self.directory / (query_id if carried_at is None else f"{query_id}.{carried_at}")

    def remove_other_versions(self, query_id: str, current: Path) -> None:
        """Removes the other checkpoints of a query that runs with `kept`."""
        version = re.compile(rf"{re.escape(query_id)}(\.[0-9]+)?")
        for other in self._all():
            if other != current and version.fullmatch(other.name):
                shutil.rmtree(other, ignore_errors=True)

    def remove_all_but(self, needed: Collection[Path]) -> None:
        """Removes the checkpoints of queries that were ended. Call it while none runs."""
        for other in self._all():
            if other not in needed:
                shutil.rmtree(other, ignore_errors=True)

    def _all(self) -> list[Path]:
        if not self.directory.is_dir():
            return []
        return [path for path in self.directory.iterdir() if path.is_dir() and not path.is_symlink()]
