"""Answers as plain data in which two brokers, or two runs of one, can be compared.

What must differ is replaced by names: the first UUID of a script becomes `<id 1>` wherever it appears, the first
producer id `<producer 1>`; addresses, the cluster's id, times of the present and the wording of messages become
`<host>`, `<port>`, `<cluster>`, `<time>` and `<text>`. That a message is there, or null, or empty, still shows. Lists
of structs with a name, a partition or the like become maps, since their order means nothing; records become a summary
of their batches.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from odradek.model.ids import ZERO_UUID
from odradek.protocol import Struct
from odradek.records import decode_batch, split_batches

_OURS = 10_000
"""Fields with tags from here on are no fields of Kafka's: its clients skip them."""

THE_PRESENT_MS = 1_750_000_000_000
"""Times above are from a clock; scripts use older ones where the time itself matters."""

IDENTITIES = (
    "api_key",
    "group_id",
    "transactional_id",
    "resource_name",
    "topic_name",
    "topic",
    "name",
    "topic_id",
    "partition_index",
    "partition_id",
    "partition",
    "index",
    "node_id",
    "broker_id",
    "key",
    "member_id",
)
"""By which of its fields an element of a list is known; the first that it has."""

ORDERED = {"synonyms", "node_endpoints"}
"""Lists whose order means something, and those that are only addresses."""

UNORDERED = {"entries", "entity"}
"""Lists without such a field whose order means nothing all the same."""

MASKED = {
    "host": "<host>",
    "port": "<port>",
    "cluster_id": "<cluster>",
    "log_dir": "<directory>",
    "finalized_features_epoch": "<epoch>",
}
TEXTS = {"error_message", "batch_index_error_message", "acknowledge_error_message", "documentation"}
PRODUCER_IDS = {"producer_id", "ongoing_txn_producer_id"}
GROUP_EPOCHS = {"member_epoch", "group_epoch", "assignment_epoch"}
"""Where they begin, and in which steps they grow, is the coordinator's own affair; that they grow, shows."""

_UUIDS = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<![\w-])(?=[\w-]*[A-Z])[\w-]{22}(?![\w-])"
)
"""As Java's UUIDs are written, and Kafka's: 22 characters of base64."""


class Names:
    """What stands for values that differ from run to run, in the order in which a script met them."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        """Names that a script gave to texts whose form does not matter."""
        self._known: dict[tuple[str, Any], str] = {}
        self._counts: dict[str, int] = {}

    def of(self, kind: str, value: Any, *, called: str | None = None) -> str:
        """The name of a value, which it gets when it is first met: what it is `called`, or else a number."""
        name = self._known.get((kind, value))
        if name is None:
            what = kind if called is None else f"{kind} of {called}"
            count = self._counts[what] = self._counts.get(what, 0) + 1
            name = self._known[kind, value] = f"<{what} {count}>"
        return name


def plain(value: Any, version: int, names: Names, field: str = "") -> Any:
    """A message of that version as dicts, lists, strings and numbers."""
    if isinstance(value, Struct):
        _name_topic(value, names)
        shown = (
            message_field
            for message_field in value.FIELDS
            if version in message_field.versions and (message_field.tag or 0) < _OURS
        )
        return {named.name: plain(getattr(value, named.name), version, names, named.name) for named in shown}
    if isinstance(value, list):
        return _list(value, version, names, field)
    if field in MASKED:
        return MASKED[field] if value not in ("", None, -1) else value
    if isinstance(value, UUID):
        return names.of("id", value) if value != ZERO_UUID else "0"
    if isinstance(value, str) and value in names.given:
        return names.given[value]
    if isinstance(value, str):
        return (
            "<text>"
            if field in TEXTS and value
            else _UUIDS.sub(lambda fields: names.of("text id", fields[0]), value)
        )
    if isinstance(value, bytes | bytearray | memoryview):
        return batches(bytes(value), names) if field == "records" else bytes(value).hex()
    if isinstance(value, int) and not isinstance(value, bool):
        return _number(value, names, field)
    return value


def _name_topic(value: Struct, names: Names) -> None:
    """Where a topic's id stands beside its name, the one is known by the other from then on."""
    topic_id = getattr(value, "topic_id", None)
    called = next(
        (name for key in ("name", "topic_name", "topic") if (name := getattr(value, key, None))), None
    )
    if topic_id and called:
        names.of("id", topic_id, called=called)


def _number(value: int, names: Names, field: str) -> int | str:
    if field in PRODUCER_IDS and value >= 0:
        return names.of("producer", value)
    if field in GROUP_EPOCHS and value > 0:
        return names.of("epoch", value)
    return "<time>" if value >= THE_PRESENT_MS and "offset" not in field and value < 1 << 50 else value


def _list(values: list[Any], version: int, names: Names, field: str) -> Any:
    identity = _identity(values) if values else None
    if identity is None or field in ORDERED:
        shown = [plain(value, version, names, field) for value in values]
        return sorted(shown, key=str) if field in UNORDERED else shown
    fields: dict[str, Any] = {}
    for value in sorted(
        values, key=lambda element: _sortable(plain(getattr(element, identity), version, names))
    ):
        plain_value = plain(value, version, names)
        name = label = str(plain_value.pop(identity))
        again = 1
        while label in fields:
            again += 1
            label = f"{name} #{again}"
        fields[label] = plain_value
    return fields


def _identity(values: list[Any]) -> str | None:
    """The first field that all of them have, or else the first that one of them has."""
    if not isinstance(values[0], Struct):
        return None
    mine = [name for name in IDENTITIES if name in {field.name for field in values[0].FIELDS}]
    given = {name: [getattr(value, name) not in ("", None) for value in values] for name in mine}
    return next(
        (name for name in mine if all(given[name])), next((name for name in mine if any(given[name])), None)
    )


def _sortable(value: Any) -> tuple[bool, Any]:
    return isinstance(value, int), value if isinstance(value, int) else str(value)


def batches(data: bytes, names: Names) -> list[dict[str, Any]]:
    """Stored batches by what their headers say and their records hold."""
    return [
        {
            "offsets": f"{header.base_offset}-{header.last_offset}",
            "leader_epoch": header.partition_leader_epoch,
            "attributes": header.attributes,
            "first_timestamp": _number(header.base_timestamp, names, ""),
            "max_timestamp": _number(header.max_timestamp, names, ""),
            "producer": plain(header.producer_id, 0, names, "producer_id"),
            "epoch": header.producer_epoch,
            "sequence": header.base_sequence,
            "records": _records(header, batch),
        }
        for header, batch in split_batches(data, allow_partial=True)
    ]


def _records(header: Any, batch: Any) -> list[str]:
    text = (lambda value: value.hex()) if header.is_control else _text
    return [
        f"{record.offset} {record.timestamp if record.timestamp < THE_PRESENT_MS else '<time>'} "
        f"{text(record.key)}={text(record.value)}"
        for record in decode_batch(batch, header)
    ]


def _text(value: bytes | None) -> str:
    return "null" if value is None else value.decode("utf-8", "backslashreplace")
