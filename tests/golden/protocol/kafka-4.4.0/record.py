"""Write `definitions.txt`, `bytes.txt` and `errors.txt` beside this file from the jars of Apache Kafka.

    jars=$(.venv/bin/python -m benchmarks.peer --fetch-only)
    .venv/bin/python tests/golden/protocol/kafka-4.4.0/record.py $jars

Needs a JDK. What the files hold: README.md.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from odradek.protocol import APIS
from odradek.protocol.versions import VersionRange, parse_versions

HERE = Path(__file__).parent
VERSION = HERE.name.removeprefix("kafka-")

CLIENTS = f"kafka-clients-{VERSION}.jar"
COORDINATORS = {
    f"kafka-{key_type}-coordinator-{VERSION}.jar": f"org.apache.kafka.coordinator.{key_type}.generated."
    for key_type in ("group", "transaction", "share")
}
MESSAGES = "org.apache.kafka.common.message."
KNOWN_ELSEWHERE = 66
"""APIs up to this key are compared with kafka-python's codec byte by byte already; their bytes are not recorded."""
NOWHERE_ELSE = (56,)
"""Between brokers: kafka-python does not know it."""
INT8_END = 128
"""The numbers of a long message do not all fit into an int8: there they begin again at 0."""
OUR_OWN = 10_000
"""APIs from this key on are not Kafka's."""

Definition = dict[str, Any]


def main(jars: Path) -> None:
    definitions = dict(_definitions(jars))
    lines = [line for definition in definitions.values() for line in [*_facts(definition), ""]]
    (HERE / "definitions.txt").write_text("\n".join(lines))
    asked = [
        line
        for cls, message_definition in definitions.items()
        if _is_recorded(message_definition)
        for line in _samples(cls, message_definition)
    ]
    answered = _java(jars, "encode", "\n".join(json.dumps(line) for line in asked)).splitlines()
    encoded = zip(asked, answered, strict=True)
    (HERE / "bytes.txt").write_text(
        "".join(f"{a['name']} {a['version']} {a['what']} {b}\n" for a, b in encoded)
    )
    (HERE / "errors.txt").write_text(_java(jars, "errors", ""))


def _is_recorded(definition: Definition) -> bool:
    if definition["type"] not in ("request", "response"):
        return True
    return bool(definition["apiKey"] > KNOWN_ELSEWHERE or definition["apiKey"] in NOWHERE_ELSE)


def _definitions(jars: Path) -> Iterator[tuple[str, Definition]]:
    """Java class -> definition: of every API that is declared here, and of the coordinators' records."""
    with ZipFile(jars / CLIENTS) as jar:
        kafkas = [api for api in APIS.values() if api.key < OUR_OWN]
        for name in [f"{api.name}{side}" for api in kafkas for side in ("Request", "Response")]:
            yield f"{MESSAGES}{name}Data", _read(jar, f"common/message/{name}.json")
        for name in ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"):
            yield MESSAGES + name, _read(jar, f"common/message/{name}.json")
    for name, package in COORDINATORS.items():
        with ZipFile(jars / name) as jar:
            results = [_read(jar, path) for path in jar.namelist() if path.endswith(".json")]
        for definition in sorted(results, key=lambda entry: (entry["apiKey"], entry["type"])):
            yield package + definition["name"], definition


def _read(jar: ZipFile, path: str) -> Definition:
    definition: Definition = json.loads(
        re.sub(r"(^|\s)//.*$", "", jar.read(path).decode(), flags=re.MULTILINE)
    )
    common = {entry["name"]: entry["fields"] for entry in definition.get("commonStructs", [])}
    _inline(definition["fields"], common)
    return definition


def _inline(fields: list[Definition], common: dict[str, list[Definition]]) -> None:
    for field in fields:
        field.setdefault("versions", field.get("taggedVersions"))
        shared = common.get(field["type"].removeprefix("[]"))
        if shared is not None:
            field["fields"] = json.loads(json.dumps(shared))
        _inline(field.get("fields", []), common)


def _facts(definition: Definition) -> Iterator[str]:
    kind = f"{definition['type'].replace('coordinator-', 'record ')} {definition.get('apiKey', '')}".strip()
    unstable = ", latest unstable" if definition.get("latestVersionUnstable") else ""
    yield (
        f"{definition['name']}: {kind}, versions {definition['validVersions']}, "
        f"flexible {definition['flexibleVersions']}{unstable}"
    )
    yield from _fields(definition["fields"], 1)


def _fields(fields: list[Definition], depth: int) -> Iterator[str]:
    for field in fields:
        facts = [f"{field['type']} {field['versions']}"]
        for key, said in (("nullableVersions", "nullable"), ("default", "default"), ("tag", "tag")):
            if (
                field.get(key) is not None
            ):  # Kafka's generator takes a default that is JSON's null for none given
                facts.append(f"{said} {field[key]}")
        if "taggedVersions" in field:
            facts.append(f"tagged {field['taggedVersions']}")
        if field.get("ignorable") in (True, "true"):
            facts.append("ignorable")
        yield f"{'  ' * depth}{field['name']}: {', '.join(facts)}"
        yield from _fields(field.get("fields", []), depth + 1)


def _samples(cls: str, definition: Definition) -> Iterator[Definition]:
    for version in parse_versions(definition["validVersions"]):
        made: list[Definition] = []
        for what in ("full", "empty", "null"):
            numbers = itertools.count(1) if what == "full" else None
            sample = _struct(definition["fields"], version, numbers, left_out=what == "empty")
            if sample not in made:
                made.append(sample)
                yield {
                    "class": cls,
                    "name": definition["name"],
                    "version": version,
                    "what": what,
                    "json": sample,
                }


def _struct(
    fields: list[Definition], version: int, numbers: Iterator[int] | None, *, left_out: bool
) -> Definition:
    """The message as JSON, as README.md says: numbered values, or as little as the version allows."""
    return {
        field["name"][0].lower() + field["name"][1:]: _value(field, field["type"], version, numbers)
        for field in fields
        if version in parse_versions(field["versions"])
        and not (numbers is None and _skipped(field, version, left_out))
    }


def _skipped(field: Definition, version: int, left_out: bool) -> bool:
    tagged = version in parse_versions(field.get("taggedVersions", "none"))
    return tagged and (left_out or version not in _nullable(field))


def _value(field: Definition, kind: str, version: int, numbers: Iterator[int] | None) -> Any:
    if numbers is None and version in _nullable(field):
        return None
    if kind.startswith("[]"):
        return [] if numbers is None else [_value(field, kind[2:], version, numbers) for _ in range(2)]
    if kind[0].isupper():
        return _struct(field["fields"], version, numbers, left_out=True)
    number = 0 if numbers is None else next(numbers)
    if kind == "bool":
        return number > 0
    if kind == "string":
        return f"text {number}" if number else ""
    if kind == "uuid":
        return _base64(number.to_bytes(16, "big")).translate(str.maketrans("+/", "-_")).rstrip("=")
    if kind == "int8":
        return number % INT8_END
    if kind in ("bytes", "records"):
        return _base64(b"bytes %d" % number if number else b"")
    return number


def _nullable(field: Definition) -> VersionRange:
    return parse_versions(field.get("nullableVersions", "none"))


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _java(jars: Path, mode: str, said: str) -> str:
    command = ["java", "-cp", f"{jars}/*", str(HERE / "KafkaFacts.java"), mode]
    ended = subprocess.run(command, input=said, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(ended.stderr)
    return ended.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
