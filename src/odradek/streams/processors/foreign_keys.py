"""Foreign-key joins of tables, and their subscriptions: left rows refer to a key of the right table (KIP-213).

A left row sends subscriptions to its old and to its new foreign key (`translation/join_operators.py`). The task of the foreign
key stores them as `references`, next to the right row, and answers each.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.streams.plan.operators import JoinKind
from odradek.streams.processors.ports import InputRow, TaskState, UpdateRow


class ForeignKeyProcessor:
    """Joins left rows with the right row that their foreign key names. Port 0 has the subscriptions of left rows; port 1 is
    the right table. The key is the foreign key.

    Payload of port 0: {"key": the left key, "value": its row, "instruction": what follows}. `keep`: the row refers to this
    key. `move`: as keep, and it referred to another one before, where its result is no more. `leave`: it no longer refers to
    this key, and another key answers. `delete`: nothing answers any more. Output: left, right; both null for a delete. The
    key is the left one."""

    entries: tuple[str, ...] = ("references", "right")

    def __init__(self, kind: JoinKind) -> None:
        self._left = kind == "left"

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        yield from self._right(row, state) if row.port else self._reference(row, state)

    def _reference(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        assert row.payload is not None
        key, value, instruction = row.payload["key"], row.payload["value"], row.payload["instruction"]
        if row.key is None:
            if instruction == "delete" or value is None or self._left:
                yield UpdateRow(
                    key,
                    (value if self._left and instruction != "delete" else None, None),
                    row.timestamp,
                    row.headers,
                )
            return
        references = state.get("references", row.key) or {}
        right = state.get("right", row.key)
        subscriber = repr(tuple(key.values()))
        if instruction in ("leave", "delete"):
            references.pop(subscriber, None)
        else:
            references[subscriber] = (key, value)
        state.put("references", row.key, references or None)
        if instruction == "leave" or (instruction == "keep" and right is None and not self._left):
            return
        answered = right is not None and not (
            self._left and instruction == "delete"
        )  # a left join deletes without asking
        timestamp = max(row.timestamp, right[1]) if answered else row.timestamp
        right = None if right is None or instruction == "delete" else right[0]
        left = None if instruction == "delete" or (right is None and not self._left) else value
        yield UpdateRow(key, (left, right), timestamp, row.headers)

    def _right(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        if row.key is None:
            return
        state.put("right", row.key, None if row.payload is None else (row.payload, row.timestamp))
        for _, (key, value) in sorted((state.get("references", row.key) or {}).items()):
            left = value if row.payload is not None or self._left else None
            yield UpdateRow(key, (left, row.payload), row.timestamp, row.headers)
