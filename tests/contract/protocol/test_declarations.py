"""Every declaration says what Kafka's own message definitions say, and writes the bytes that Kafka's classes write.

The definitions and the bytes were recorded from the jars of Apache Kafka: `tests/golden/protocol/kafka-4.4.0`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol import APIS, Api, Message, Struct, VersionRange, api_by_name, decode, encode
from odradek.protocol.codegen import size_min
from odradek.protocol.messages.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from odradek.protocol.schema import FRESH_LIST, ArrayKind, Field, Kind, StructKind
from odradek.protocol.versions import NO_VERSIONS, parse_versions

RECORDED = Path(__file__).parents[2] / "golden" / "protocol" / "kafka-4.4.0"
RECORD_FORMATS = (
    "odradek.groups.shard.formats",
    "odradek.groups.consumer.formats",
    "odradek.groups.share.formats",
    "odradek.groups.streams.formats",
    "odradek.groups.share.state_formats",
    "odradek.transactions.formats",
)
INT8_END = 128
"""From here on the numbers of a message begin again in an int8."""
OURS = 10_000
"""From this key on an API is not Kafka's, and from this tag on a field is not."""
KAFKAS = [api for api in APIS.values() if api.key < OURS]
MESSAGES: list[type[Message]] = [cls for api in KAFKAS for cls in (api.request, api.response)]


def read_definitions() -> dict[str, dict[str, Any]]:
    """`definitions.txt`, by name of message: its facts, and under "fields" those of its fields, nested."""
    api_names = {}
    for block in (RECORDED / "definitions.txt").read_text().strip().split("\n\n"):
        first, *lines = block.splitlines()
        message = read_facts(first)
        api_names[message["name"]] = message
        around = [message]
        for line in lines:
            del around[(len(line) - len(line.lstrip())) // 2 :]
            field = read_facts(line)
            around[-1]["fields"].append(field)
            around.append(field)
    return api_names


def read_facts(line: str) -> dict[str, Any]:
    """`InstanceId: string 0+, nullable 0+` -> name, is ("string 0+"), nullable ("0+"), and no fields yet."""
    name, said = line.strip().split(": ", 1)
    first, *others = said.split(", ")
    return {"name": name, "is": first, **dict(f"{fact} ".split(" ", 1) for fact in others), "fields": []}


DEFINED = read_definitions()


def declared_records() -> Iterator[tuple[str, type[Message]]]:
    """The records that coordinators keep in their logs, by the names that Kafka's definitions have for them."""
    for name in RECORD_FORMATS:
        if find_spec(name.rpartition(".")[0]) and find_spec(name):
            module = import_module(name)
            for cls in vars(module).values():
                if isinstance(cls, type) and issubclass(cls, Message) and cls.__module__ == name:
                    yield kafkas_name(cls, module), cls


def kafkas_name(cls: type[Message], module: Any) -> str:
    """Its own name, or that of the record of a group whose type is the version of its key."""
    if cls.__name__ in DEFINED:
        return cls.__name__
    side = "key" if cls.__name__.endswith("Key") else "value"
    key: type[Message] = getattr(module, cls.__name__.removesuffix("Key").removesuffix("Value") + "Key")
    wanted = f"record {side} {key.VERSIONS.max}"
    return next(name for name, entry in DEFINED.items() if entry["is"] == wanted and "Group" in name)


RECORDS = dict(declared_records())
DECLARED = RECORDS | {
    cls.__name__: cls for cls in (*MESSAGES, ConsumerProtocolSubscription, ConsumerProtocolAssignment)
}


def snake_case(name: str) -> str:
    underscored = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return underscored.replace("enable2_pc", "enable_2pc")


def versions(facts: dict[str, Any], key: str) -> VersionRange:
    return parse_versions(facts.get(key, "none").strip())


def expected_default(field: dict[str, Any]) -> Any:
    kind, default = field["is"].split()[0], field.get("default", "").strip()
    if default == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return FRESH_LIST
    zeros: dict[str, Any] = {"string": default, "bytes": b"", "bool": default == "true", "float64": 0.0}
    if kind in zeros:
        return zeros[kind]
    if kind == "uuid":
        return 0
    if kind[0].isupper():
        return {snake_case(member["name"]): expected_default(member) for member in field["fields"]}
    return int(default or "0", 0)


def declared_default(default: Any) -> Any:
    if isinstance(default, Struct):
        return {field.name: declared_default(field.default) for field in default.FIELDS}
    return getattr(default, "int", default)


def inner(kind: Kind[Any]) -> Kind[Any]:
    return kind.element if isinstance(kind, ArrayKind) else kind


def facts_defined(field: dict[str, Any]) -> dict[str, Any]:
    kind, exists = field["is"].split()
    tag = field.get("tag", "").strip()
    return {
        "name": snake_case(field["name"]),
        "kind": re.sub(r"[A-Z]\w*", "struct", kind),
        "versions": parse_versions(exists),
        "nullable": versions(field, "nullable"),
        "tag": int(tag) if tag else None,
        "tagged": versions(field, "tagged"),
        "ignorable": "ignorable" in field,
        "default": expected_default(field),
    }


def facts_declared(field: Field) -> dict[str, Any]:
    element = "struct" if isinstance(inner(field.kind), StructKind) else inner(field.kind).name
    return {
        "name": field.name,
        "kind": ("[]" if isinstance(field.kind, ArrayKind) else "") + element,
        "versions": field.versions,
        "nullable": field.nullable,
        "tag": field.tag,
        "tagged": field.tagged,
        "ignorable": field.ignorable,
        "default": declared_default(field.default),
    }


def kafkas_fields(cls: type[Struct]) -> list[Field]:
    return [field for field in cls.FIELDS if field.tag is None or field.tag < OURS]


def compare(
    cls: type[Struct], fields: list[dict[str, Any]], path: str, ignored: frozenset[str], first: int = 0
) -> None:
    """`first`: the first version that has the struct. What its fields say of versions before it means nothing."""
    assert [field.name for field in kafkas_fields(cls)] == [snake_case(field["name"]) for field in fields], (
        path
    )
    for declared, defined in zip(kafkas_fields(cls), fields, strict=True):
        here = f"{path}.{declared.name}"
        ours, kafkas = (since(first, facts) for facts in (facts_declared(declared), facts_defined(defined)))
        assert without(ours, ignored) == without(kafkas, ignored), here
        kind = inner(declared.kind)
        if isinstance(kind, StructKind):
            compare(kind.cls, defined["fields"], here, ignored, max(first, declared.versions.min))


def since(first: int, facts: dict[str, Any]) -> dict[str, Any]:
    ranges = {name: facts[name] for name in ("versions", "nullable") if facts[name] != NO_VERSIONS}
    return facts | {name: VersionRange(max(exists.min, first), exists.max) for name, exists in ranges.items()}


def without(facts: dict[str, Any], ignored: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key not in ignored}


@pytest.mark.parametrize("name", sorted(DECLARED.keys() - RECORDS.keys()))
def test_a_declaration_equals_kafkas_definition_field_by_field(name: str) -> None:
    cls, defined = DECLARED[name], DEFINED[name]
    assert versions(defined, "versions") == cls.VERSIONS
    assert versions(defined, "flexible") == cls.FLEXIBLE
    assert (cls.API_KEY is not None) == defined["is"].startswith(("request", "response"))
    compare(cls, defined["fields"], name, frozenset())


@pytest.mark.parametrize("name", RECORDS)
def test_a_coordinators_record_is_laid_out_as_in_kafkas_log(name: str) -> None:
    cls, defined = RECORDS[name], DEFINED[name]
    assert versions(defined, "flexible") == cls.FLEXIBLE
    if defined["is"].startswith("record key"):  # its version on the wire is the type of record
        compare(cls, defined["fields"], name, frozenset({"versions", "nullable", "ignorable", "default"}))
    else:
        assert versions(defined, "versions") == cls.VERSIONS
        compare(cls, defined["fields"], name, frozenset({"ignorable", "default"}))


@pytest.mark.parametrize("api", KAFKAS, ids=lambda api: api.name)
def test_the_table_of_apis_equals_the_declarations(api: Api) -> None:
    defined = DEFINED[f"{api.name}Request"]
    assert defined["is"] == f"request {api.key}"
    assert DEFINED[f"{api.name}Response"]["is"] == f"response {api.key}"
    assert api.key == api.request.API_KEY == api.response.API_KEY
    assert api.versions == api.request.VERSIONS == api.response.VERSIONS
    assert api.latest_stable == api.versions.max - ("latest" in defined)
    flexible = api.request.FLEXIBLE
    assert flexible == api.response.FLEXIBLE
    expected = NO_VERSIONS if api.flexible_from is None else parse_versions(f"{api.flexible_from}+")
    assert flexible == expected
    assert api_by_name(api.name) is api


def numbered(cls: type[Struct], version: int, numbers: Iterator[int]) -> Any:
    """The message called "full" in the recorded bytes: see the README beside them."""
    present = (field for field in kafkas_fields(cls) if version in field.versions)
    return cls(**{field.name: numbered_value(field.kind, version, numbers) for field in present})


def numbered_value(kind: Kind[Any], version: int, numbers: Iterator[int]) -> Any:
    if isinstance(kind, StructKind):
        return numbered(kind.cls, version, numbers)
    if isinstance(kind, ArrayKind):
        return [numbered_value(kind.element, version, numbers) for _ in range(2)]
    number = next(numbers)
    if kind.name == "int8":
        return number % INT8_END
    if kind.name in ("bytes", "records"):
        return b"bytes %d" % number
    values = {"string": f"text {number}", "uuid": UUID(int=number), "bool": True}
    return values.get(kind.name, number)


def barest(cls: type[Struct], version: int, *, tagged_nulls: bool) -> Any:
    """The messages called "null" and "empty": null wherever that is allowed, in tagged fields too or not."""
    values = {}
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        if version in field.tagged:
            if tagged_nulls and version in field.nullable:
                values[field.name] = None
        elif version in field.nullable:
            values[field.name] = None
        elif isinstance(field.kind, StructKind):
            values[field.name] = barest(field.kind.cls, version, tagged_nulls=False)
        else:
            values[field.name] = [] if isinstance(field.kind, ArrayKind) else zero(field.kind)
    return cls(**values)


def zero(kind: Kind[Any]) -> Any:
    return b"" if kind.name == "records" else kind.zero()


def read_recorded_bytes() -> list[Any]:
    rows = [line.split(" ") for line in (RECORDED / "bytes.txt").read_text().splitlines()]
    return [
        pytest.param(
            DECLARED[name], int(version), what, bytes.fromhex(written), id=f"{name}-v{version}-{what}"
        )
        for name, version, what, written in rows
        if name in DECLARED
    ]


@pytest.mark.parametrize(("cls", "version", "what", "recorded"), read_recorded_bytes())
def test_the_bytes_that_kafkas_classes_wrote_are_read_and_written_the_same(
    cls: type[Message], version: int, what: str, recorded: bytes
) -> None:
    if version not in cls.VERSIONS:  # a key's version is its type of record
        version = cls.VERSIONS.max
    if what == "full":
        message = numbered(cls, version, itertools.count(1))
    else:
        message = barest(cls, version, tagged_nulls=what == "null")
    assert encode(message, version).hex() == recorded.hex()
    assert decode(cls, version, recorded) == (message, len(recorded))


def test_produce_is_advertised_from_zero_for_librdkafka_and_readable_from_three() -> None:
    produce = api_by_name("Produce")
    assert produce.offered() == VersionRange(0, 13)
    assert produce.versions == VersionRange(3, 13)


def test_unstable_versions_are_offered_only_on_demand() -> None:
    init = api_by_name("InitProducerId")
    assert init.offered() == VersionRange(0, 5)
    assert init.offered(unstable=True) == VersionRange(0, 6)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_every_array_element_takes_bytes_so_that_counts_can_be_checked(cls: type[Message]) -> None:
    def check(struct: type[Struct], version: int) -> None:
        for field in struct.FIELDS:
            kind = inner(field.kind)
            if version in field.versions and isinstance(kind, StructKind):
                assert size_min(kind, version, version in cls.FLEXIBLE) > 0, (field, version)
                check(kind.cls, version)

    for version in cls.VERSIONS:
        check(cls, version)


def test_tags_are_unique_within_a_struct() -> None:
    for cls in DECLARED.values():
        tags = [field.tag for field in cls.FIELDS if field.tag is not None]
        assert len(tags) == len(set(tags))
