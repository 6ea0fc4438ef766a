"""Directories of persistent queries' checkpoints on this machine: each version that was carried over has one of its own."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from odradek.sql.queries.builds import program_name
from odradek.sql.queries.channel import StartQuery
from odradek.sql.queries.engine import SupervisedQuery


def _directory_name(query_id: str) -> str:
    """Returns the name of a query's directory: its id, or a name with a digest where the id holds other signs."""
    return program_name(query_id if not query_id.startswith(".") else f"/{query_id}")


@dataclass(frozen=True, slots=True)
class QueryCheckpoints:
    """The checkpoint directories of a service's queries.

    `directory`: of a service. All that is in it may be lost, so a checkpoint that no query continues is removed.
    """

    directory: Path

    def directory_of(self, query_id: str, carried_at: int | None) -> Path:
        """Returns a query's checkpoint. `carried_at`: the number of the command that carried it over last.

        It is within `directory`, whatever the id holds: names in back quotes may have signs of paths.
        """
        name = _directory_name(query_id)
        return self.directory / (name if carried_at is None else f"{name}.{carried_at}")

    def remove_other_versions(self, query_id: str, current: Path) -> None:
        """Removes the other checkpoints of a query that runs with `current`."""
        version = re.compile(rf"{re.escape(_directory_name(query_id))}(\.[0-9]+)?")
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


class CheckpointRemoval:
    """Removes the checkpoints of replaced versions once the query runs on its own. Used from one event loop."""

    def __init__(self, checkpoints: QueryCheckpoints) -> None:
        self._checkpoints = checkpoints
        self._tasks: set[asyncio.Task[None]] = set()

    def query_changed(self, query_id: str, query: SupervisedQuery) -> None:
        """Starts the removal on a thread when a query is RUNNING."""
        if query.state == "RUNNING" and isinstance(query.order, StartQuery):
            removal = asyncio.to_thread(
                self._checkpoints.remove_other_versions, query_id, Path(query.order.checkpoint)
            )
            task = asyncio.get_running_loop().create_task(removal)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Waits for the removals that have begun."""
        await asyncio.gather(*self._tasks)
