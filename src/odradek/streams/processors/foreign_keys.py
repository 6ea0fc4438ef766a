"""Joins of tables by a foreign key: rows of the left side refer to a key of the right one (KIP-213)."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.streams.plan.operators import JoinKind
from odradek.streams.processors.calendar import Calendar
from odradek.streams.processors.ports import Fields, InputRow, TaskState, UpdateRow
from odradek.streams.processors.windows import END, START


class ForeignKeyProcessor:
    """Port 0: what a row of the left table says to a foreign key; port 1 is the right table. The key is the foreign key.

    Payload of port 0: {"key": the left key, "value": its row, "said": what follows}. `keep`: the row refers to this key.
    `move`: as keep,
    and it referred to another one before, where its result is no more. `leave`: it no longer refers to this key, and another
    key answers. `delete`: nothing answers any more. Output: left, right; both null for a delete. The key is the left one.

    `of_key`: the foreign key is a part of the left key. Rows then say `keep` or `delete` without knowing what they replace: a
    delete of what is not there says nothing.

    `held_ms`: left keys are windows. One is forgotten, without a word, when stream time is so long after its end; an update
    that comes later is joined with what the right table holds then, and not kept.
    """

    def __init__(self, kind: JoinKind, *, of_key: bool = False, held_ms: int | None = None) -> None:
        self._left = kind == "left"
        self._of_key = of_key
        self._held_ms = held_ms

    def process(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        if self._held_ms is not None:
            self._forget_windows(state)
        yield from self._right(row, state) if row.port else self._reference(row, state)

    def _reference(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        assert row.payload is not None
        key, value, said = row.payload["key"], row.payload["value"], row.payload["said"]
        if row.key is None:
            was_said = not self._of_key and (said == "delete" or value is None)
            if was_said or self._left:
                yield UpdateRow(
                    key,
                    (value if self._left and said != "delete" else None, None),
                    row.timestamp,
                    row.headers,
                )
            return
        references = state.get("references", row.key) or {}
        right = state.get("right", row.key)
        place = repr(tuple(key.values()))
        last_ms = None if self._held_ms is None else self._last_ms(key)
        is_held = last_ms is None or last_ms >= state.stream_time
        if said in ("leave", "delete"):
            is_known = references.pop(place, None) is not None
            if self._of_key and is_held and not is_known:
                return
        elif is_held:
            if last_ms is not None and place not in references:
                Calendar(state, "windows").note(last_ms, row.key)
            references[place] = (key, value)
        state.put("references", row.key, references or None)
        if said == "leave" or (said == "keep" and right is None and not self._left):
            return
        answered = right is not None and not (
            self._left and said == "delete"
        )  # a left join deletes without asking
        timestamp = max(row.timestamp, right[1]) if answered else row.timestamp
        right = None if right is None or said == "delete" else right[0]
        left = None if said == "delete" or (right is None and not self._left) else value
        yield UpdateRow(key, (left, right), timestamp, row.headers)

    def _right(self, row: InputRow, state: TaskState) -> Iterator[UpdateRow]:
        if row.key is None:
            return
        state.put("right", row.key, None if row.payload is None else (row.payload, row.timestamp))
        references = state.get("references", row.key) or {}
        for _, (key, value) in sorted(references.items(), key=_by_window):
            left = value if row.payload is not None or self._left else None
            yield UpdateRow(key, (left, row.payload), row.timestamp, row.headers)

    def _forget_windows(self, state: TaskState) -> None:
        for _, key in Calendar(state, "windows").due(state.stream_time):
            references = state.get("references", key) or {}
            held = {
                place: reference
                for place, reference in references.items()
                if self._last_ms(reference[0]) >= state.stream_time
            }
            state.put("references", key, held or None)

    def _last_ms(self, left_key: Fields) -> int:
        """The last stream time at which a window is held."""
        assert self._held_ms is not None
        last_ms: int = left_key[END] + self._held_ms
        return last_ms


def _by_window(reference: tuple[str, tuple[Fields, Fields]]) -> tuple[int, int, str]:
    """Windows by their time, as the bytes of their keys lie in Kafka Streams; other rows by their key."""
    place, (left_key, _) = reference
    return left_key.get(START, 0), left_key.get(END, 0), place
