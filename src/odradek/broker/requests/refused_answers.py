"""Answers to what is refused: the elements of a request, mirrored into the answer's form, with the error in each place for one.

Which fields an answer takes over from the request follows from their names. So the answer to a refused topic names the topic
and its partitions, as the answer to one that does not exist would.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeVar

from odradek.model.errors import ErrorCode
from odradek.protocol import Api, Message, Struct
from odradek.protocol.schema import ArrayKind, Field, StructKind

R = TypeVar("R", bound=Struct)

_PARTITION: Final = ("partition_index", "index", "partition", "partition_id")
_TOPIC: Final = ("name", "topic", "topic_name")
_TAKEN_OVER: Final = {
    **dict.fromkeys(_PARTITION, _PARTITION),
    **dict.fromkeys(_TOPIC, _TOPIC),
    "user": ("user", "name"),
    **{
        name: (name,)
        for name in (
            "topic_id",
            "group_id",
            "key",
            "transactional_id",
            "resource_type",
            "resource_name",
            "producer_id",
        )
    },
}
"""Fields of answers that say what an element is, and how requests may call them."""
_PLAIN: Final = frozenset({"group_id", "key", "transactional_id", "name", "user"})
"""Strings of a request that its answer repeats."""
_ANSWERED_AS: Final[dict[str, dict[str, object]]] = {
    "Produce": {"base_offset": -1, "log_start_offset": -1},
    "Fetch": {"high_watermark": -1, "records": b"", "aborted_transactions": None},
    "OffsetFetch": {"committed_offset": -1, "metadata": ""},
    "DeleteRecords": {"low_watermark": -1},
    "FindCoordinator": {"node_id": -1, "host": "", "port": -1},
    "InitProducerId": {"producer_id": -1, "producer_epoch": -1},
    "DescribeClientQuotas": {"entries": None},
}
"""Other fields of an answer with an error, where they do not have their defaults."""
_OTHER_ARRAYS: Final = {
    "AddPartitionsToTxn": ("v3_and_below_topics", "results_by_topic_v3_and_below"),
    "ElectLeaders": ("topic_partitions", "replica_election_results"),
    "AlterPartitionReassignments": ("topics", "responses"),
}
"""The arrays of request and answer that go together, where a request has several, or the answer an error of its own, too."""
_BOTH: Final = frozenset({"ElectLeaders", "AlterPartitionReassignments"})
"""APIs whose answer has the error for the request and for each element."""


def mirrored(
    api: Api, version: int, cls: type[R], element: object, code: ErrorCode, message: str | None = None
) -> R:
    """Returns the answer of class `cls` to an element: a struct of the request, or a plain value such as a group's id."""
    values: dict[str, object] = {}
    extra = _ANSWERED_AS.get(api.name, {})
    has_own_error = any(field.name == "error_code" for field in cls.FIELDS)
    for field in cls.FIELDS:
        kind = field.kind
        if version not in field.versions:
            continue
        if field.name in ("error_code", "partition_error_code"):
            values[field.name] = code
        elif field.name == "error_message":
            values[field.name] = message
        elif field.name in extra:
            values[field.name] = extra[field.name]
        elif isinstance(kind, ArrayKind):
            inner = _struct_of(kind)
            if has_own_error and field.name != "entity":
                continue
            if inner is not None and has_error(inner):
                values[field.name] = [
                    mirrored(api, version, inner, below, code, message) for below in _array_in(element)
                ]
            elif field.name == "entity":
                values[field.name] = getattr(element, field.name)
        elif not isinstance(kind, StructKind):
            value = _value(element, field)
            if value is not None:
                values[field.name] = value
    return cls.of_values(values)


def whole_answer(
    api: Api, version: int, request: Any, code: ErrorCode, message: str | None = None
) -> Message:
    """Returns the answer to a request that is refused whole."""
    cls = api.response
    values: dict[str, object] = {}
    extra = _ANSWERED_AS.get(api.name, {})
    is_said = False
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        if field.name == "error_code":
            values["error_code"] = code
            is_said = True
        elif field.name == "error_message":
            values["error_message"] = message
        elif field.name in extra:
            values[field.name] = extra[field.name]
    if api.name == "JoinGroup":
        values |= {"member_id": request.member_id, "protocol_name": None if version >= _NULL_PROTOCOL else ""}
    if api.name == "AlterReplicaLogDirs":
        return cls.of_values({"results": _log_dir_answers(api, request, code)})
    if api.name == "AlterUserScramCredentials":
        users = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
        values["results"] = [
            mirrored(api, version, element_class(cls, "results"), user, code, message) for user in users
        ]
        return cls.of_values(values)
    if not is_said or api.name in _BOTH:
        requested, answered = _OTHER_ARRAYS.get(api.name) or _arrays_of(api, version)
        values[answered] = [
            mirrored(api, version, element_class(cls, answered), element, code, message)
            for element in getattr(request, requested) or ()
        ]
    return cls.of_values(values)


_NULL_PROTOCOL: Final = 7


def _log_dir_answers(api: Api, request: Any, code: ErrorCode) -> list[object]:
    topics: dict[str, list[int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            topics.setdefault(topic.name, []).extend(topic.partitions)
    cls = element_class(api.response, "results")
    inner = element_class(cls, "partitions")
    return [
        cls.of_values(
            {
                "topic_name": name,
                "partitions": [
                    inner.of_values({"partition_index": index, "error_code": code}) for index in indexes
                ],
            }
        )
        for name, indexes in topics.items()
    ]


def element_class(cls: type[Struct], array: str) -> type[Struct]:
    """Returns the class of the elements of an array of structs, for example in a response."""
    field = next(field for field in cls.FIELDS if field.name == array)
    assert isinstance(field.kind, ArrayKind)
    element = _struct_of(field.kind)
    assert element is not None, f"{cls.__name__}.{array} has plain values"
    return element


@cache
def _arrays_of_class(
    api_key: int, request: type[Message], response: type[Message], version: int
) -> tuple[str, str]:
    requested = next(
        field.name
        for field in request.FIELDS
        if isinstance(field.kind, ArrayKind) and version in field.versions
    )
    answered = next(
        field.name
        for field in response.FIELDS
        if isinstance(field.kind, ArrayKind)
        and version in field.versions
        and (inner := _struct_of(field.kind)) is not None
        and has_error(inner)
    )
    return requested, answered


def _arrays_of(api: Api, version: int) -> tuple[str, str]:
    return _arrays_of_class(api.key, api.request, api.response, version)


@cache
def has_error(cls: type[Struct]) -> bool:
    """Tells whether the struct, or one in it, has a field for an error."""
    for field in cls.FIELDS:
        if field.name in ("error_code", "partition_error_code"):
            return True
        inner = _struct_of(field.kind) if isinstance(field.kind, ArrayKind) else None
        if inner is not None and has_error(inner):
            return True
    return False


def _struct_of(kind: ArrayKind[object]) -> type[Struct] | None:
    element = kind.element
    return element.cls if isinstance(element, StructKind) else None


def _array_in(element: object) -> Sequence[object]:
    """Returns the array that the answer mirrors: the first one of an element."""
    if not isinstance(element, Struct):
        return ()
    for field in element.FIELDS:
        if isinstance(field.kind, ArrayKind):
            members: Sequence[object] | None = getattr(element, field.name)
            return members or ()
    return ()


def _value(element: object, field: Field) -> object:
    if isinstance(element, int):
        return element if field.name in _PARTITION else None
    if isinstance(element, str):
        return element if field.name in _PLAIN else None
    for name in _TAKEN_OVER.get(field.name, ()):
        if (value := getattr(element, name, None)) is not None:
            return value
    return None
