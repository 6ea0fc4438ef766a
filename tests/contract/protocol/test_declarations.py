"""Every declaration says what Kafka's own message definitions say.

The definitions are the JSON files that ship in the kafka-python wheel.
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol import APIS, Api, Message, Struct, VersionRange, api_by_name
from odradek.protocol.codegen import size_min
from odradek.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from odradek.protocol.schema import FRESH_LIST, ArrayKind, Field, StructKind
from odradek.protocol.versions import NO_VERSIONS, parse_versions

MESSAGES: list[type[Message]] = [cls for api in APIS.values() for cls in (api.request, api.response)]
DATA: list[type[Message]] = [ConsumerProtocolSubscription, ConsumerProtocolAssignment]


def definitions() -> Path:
    spec = find_spec("kafka")
    assert spec is not None, "kafka-python is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent / "protocol" / "schemas" / "resources"


def definition(name: str) -> dict[str, Any]:
    text = (definitions() / f"{name}.json").read_text()
    parsed: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return parsed


def snake_case(name: str) -> str:
    underscored = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return underscored.replace("enable2_pc", "enable_2pc")


def expected_default(field: dict[str, Any], common: dict[str, Any]) -> Any:
    kind, default = field["type"], field.get("default", "")
    if default == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return FRESH_LIST
    zeros: dict[str, Any] = {
        "string": default,
        "bytes": b"",
        "bool": default in (True, "true"),
        "float64": 0.0,
    }
    if kind in zeros:
        return zeros[kind]
    if kind == "uuid":
        return 0
    if kind[0].isupper():
        return {snake_case(f["name"]): expected_default(f, common) for f in members(field, common)}
    return int(str(default or 0), 0)


def declared_default(default: Any) -> Any:
    if isinstance(default, Struct):
        return {field.name: declared_default(field.default) for field in default.FIELDS}
    return getattr(default, "int", default)


def members(field: dict[str, Any], common: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = field.get("fields") or common[field["type"].removeprefix("[]")]
    return found


def facts_defined(field: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    assert "flexibleVersions" not in field, "only the client id in the request header is special"
    return {
        "name": snake_case(field["name"]),
        "versions": parse_versions(field["versions"]),
        "nullable": parse_versions(field.get("nullableVersions", "none")),
        "tag": field.get("tag"),
        "tagged": parse_versions(field.get("taggedVersions", "none")),
        "ignorable": field.get("ignorable", False) in (True, "true"),
        "default": expected_default(field, common),
        "array": field["type"].startswith("[]"),
        "struct": field["type"].removeprefix("[]")[0].isupper(),
    }


def facts_declared(field: Field) -> dict[str, Any]:
    inner = field.kind.element if isinstance(field.kind, ArrayKind) else field.kind
    return {
        "name": field.name,
        "versions": field.versions,
        "nullable": field.nullable,
        "tag": field.tag,
        "tagged": field.tagged,
        "ignorable": field.ignorable,
        "default": declared_default(field.default),
        "array": isinstance(field.kind, ArrayKind),
        "struct": isinstance(inner, StructKind),
    }


def compare(cls: type[Struct], fields: list[dict[str, Any]], common: dict[str, Any], path: str) -> None:
    assert [field.name for field in cls.FIELDS] == [snake_case(field["name"]) for field in fields], path
    for declared, defined in zip(cls.FIELDS, fields, strict=True):
        here = f"{path}.{declared.name}"
        assert facts_declared(declared) == facts_defined(defined, common), here
        kind = declared.kind.element if isinstance(declared.kind, ArrayKind) else declared.kind
        if isinstance(kind, StructKind):
            compare(kind.cls, members(defined, common), common, here)
        else:
            assert kind.name == defined["type"].removeprefix("[]"), here


@pytest.mark.parametrize("cls", MESSAGES + DATA, ids=lambda cls: cls.__name__)
def test_a_declaration_equals_kafkas_definition_field_by_field(cls: type[Message]) -> None:
    defined = definition(cls.__name__)
    common = {struct["name"]: struct["fields"] for struct in defined.get("commonStructs", [])}
    assert parse_versions(defined["validVersions"]) == cls.VERSIONS
    assert parse_versions(defined["flexibleVersions"]) == cls.FLEXIBLE
    assert defined.get("apiKey") == cls.API_KEY
    compare(cls, defined["fields"], common, cls.__name__)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_table_of_apis_equals_the_declarations(api: Api) -> None:
    defined = definition(f"{api.name}Request")
    unstable = defined.get("latestVersionUnstable", False)
    assert api.key == api.request.API_KEY == api.response.API_KEY
    assert api.versions == api.request.VERSIONS == api.response.VERSIONS
    assert api.latest_stable == api.versions.max - unstable
    flexible = api.request.FLEXIBLE
    assert flexible == api.response.FLEXIBLE
    expected = NO_VERSIONS if api.flexible_from is None else parse_versions(f"{api.flexible_from}+")
    assert flexible == expected
    assert api_by_name(api.name) is api


def test_every_api_that_kafkas_clients_define_is_declared() -> None:
    defined = {path.name.removesuffix("Request.json") for path in definitions().glob("*Request.json")}
    assert {api.name for api in APIS.values()} == defined


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
            kind = field.kind.element if isinstance(field.kind, ArrayKind) else field.kind
            if version in field.versions and isinstance(kind, StructKind):
                assert size_min(kind, version, version in cls.FLEXIBLE) > 0, (field, version)
                check(kind.cls, version)

    for version in cls.VERSIONS:
        check(cls, version)


def test_tags_are_unique_within_a_struct() -> None:
    for cls in MESSAGES:
        tags = [field.tag for field in cls.FIELDS if field.tag is not None]
        assert len(tags) == len(set(tags))
