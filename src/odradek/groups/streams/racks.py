"""Finds the racks for the standby tasks of a task by the client tags of the processes (`streams.rack.aware.assignment.tags`).

The keys are in the order of their importance. The next standby task of a task belongs in a process whose value of the first key
no holder of the task has; of several such, in one that differs in most of the keys after it, the earlier key before the later.
When all values of a key are used up, the next key decides; after the last key, tags decide nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Rack = tuple[str | None, ...]
"""The values of all keys, in their order; None for a tag that a process does not have."""


class Racks:
    """Processes by the values of their tags: processes with the same values are interchangeable."""

    def __init__(self, keys: Sequence[str], tags_of_processes: Mapping[str, Mapping[str, str]]) -> None:
        self._key_count = len(keys)
        self._of_process: dict[str, Rack] = {
            process_id: tuple(tags.get(key) for key in keys) for process_id, tags in tags_of_processes.items()
        }
        self.processes: dict[Rack, list[str]] = {}
        """The processes of each rack; empty without keys."""
        if keys:
            for process_id in sorted(self._of_process):
                self.processes.setdefault(self._of_process[process_id], []).append(process_id)

    def rack_of(self, process_id: str) -> Rack:
        return self._of_process[process_id]

    def most_different(self, holders: Iterable[str]) -> set[Rack]:
        """Returns the racks for the next standby task, given the processes that have the task; none, if it cannot be spread any
        further."""
        used = [set(values) for values in zip(*(self._of_process[holder] for holder in holders), strict=True)]
        for index in range(self._key_count):
            scores = {
                rack: tuple(_is_new(rack, used, key) for key in range(index + 1, self._key_count))
                for rack in self.processes
                if _is_new(rack, used, index)
            }
            if scores:
                best = max(scores.values())
                return {rack for rack, score in scores.items() if score == best}
        return set()


def _is_new(rack: Rack, used: Sequence[set[str | None]], index: int) -> bool:
    value = rack[index]
    return value is not None and value not in used[index]
