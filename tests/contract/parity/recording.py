"""What Apache Kafka's jars say about its messages, error codes, settings, admin operations and features.

Message definitions are files in `kafka-clients`; `ParityFacts.java` asks Kafka's classes for the rest. All of it is kept in
`tests/golden/parity`, so that the comparison needs no Java.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from benchmarks.peer import PeerAbsentError, PeerJars
from benchmarks.peer.fetch import java_command

Facts = dict[str, dict[str, dict[str, Any]]]
"""Section, then item, then attribute. An attribute's value is what JSON can hold."""

GOLDEN = Path(__file__).parents[2] / "golden" / "parity"
_JAVA = Path(__file__).with_name("ParityFacts.java")
_JAVA_SECONDS_MAX = 170
_COMMENT = re.compile(r"(^|\s)//.*$", re.MULTILINE)


def recorded() -> tuple[str, Facts]:
    """Returns the version and the facts that are kept in the repository."""
    (path,) = GOLDEN.glob("kafka-*.json")
    facts: Facts = json.loads(path.read_text())
    return path.stem.removeprefix("kafka-"), facts


def keep(version: str, facts: Facts) -> Path:
    """Replaces the recorded facts. Every item is one line, so that a new release reads as a diff."""
    for older in GOLDEN.glob("kafka-*.json"):
        older.unlink()
    GOLDEN.mkdir(parents=True, exist_ok=True)
    path = GOLDEN / f"kafka-{version}.json"
    path.write_text(written(facts))
    return path


def written(facts: Facts) -> str:
    sections = []
    for section, items in sorted(facts.items()):
        lines = [
            f"  {json.dumps(name)}: {json.dumps(about, sort_keys=True)}"
            for name, about in sorted(items.items())
        ]
        sections.append(f"{json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def facts_of(jars: PeerJars) -> Facts:
    """Reads the facts from jars. Raises PeerAbsentError if Java cannot do so."""
    facts = _messages(jars.directory / f"kafka-clients-{jars.version}.jar")
    answers = json.loads(_java(jars))
    facts["error"] = answers["errors"]
    for scope, settings in answers["settings"].items():
        facts[f"{scope} setting"] = settings
    facts["admin"] = {name: {} for name in answers["admin"]}
    facts["feature"] = answers["features"]
    facts["release"] = {name: levels for name, levels in answers["releases"].items() if name >= "4.3"}
    return facts


def _java(jars: PeerJars) -> str:
    command = [
        java_command(),
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        jars.class_path,
        str(_JAVA),
    ]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_JAVA_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise PeerAbsentError(f"Java did not answer within {_JAVA_SECONDS_MAX} s") from None
    if ended.returncode:
        raise RuntimeError(f"{_JAVA.name} with the jars of Kafka {jars.version}: {ended.stderr.strip()}")
    return ended.stdout


def _messages(clients: Path) -> Facts:
    apis: dict[str, dict[str, Any]] = {}
    fields: dict[str, dict[str, Any]] = {}
    with ZipFile(clients) as jar:
        for path in jar.namelist():
            if not re.fullmatch(r"common/message/\w+\.json", path):
                continue
            definition = json.loads(_COMMENT.sub("", jar.read(path).decode()))
            if definition["validVersions"] == "none":
                continue  # Kafka no longer has it: the number stays taken
            if definition["type"] == "request":
                apis[definition["name"].removesuffix("Request")] = {
                    "key": definition["apiKey"],
                    "versions": definition["validVersions"],
                    "unstable": bool(definition.get("latestVersionUnstable")),
                    "listeners": sorted(definition.get("listeners", [])),
                }
            if definition["type"] in ("request", "response"):
                common = {entry["name"]: entry["fields"] for entry in definition.get("commonStructs", [])}
                name = definition["name"]
                fields[name] = {
                    "versions": definition["validVersions"],
                    "flexible": definition["flexibleVersions"],
                }
                _fields(definition["fields"], common, name, fields)
    return {"api": apis, "message": fields}


def _fields(
    defined: list[dict[str, Any]],
    common: dict[str, list[dict[str, Any]]],
    path: str,
    fields: dict[str, dict[str, Any]],
) -> None:
    for field in defined:
        here = f"{path}.{field['name']}"
        fields[here] = {
            "type": re.sub(r"[A-Z]\w*", "struct", field["type"]),
            "versions": field.get("versions", field.get("taggedVersions")),
            "nullable": field.get("nullableVersions", "none"),
            "tag": field.get("tag"),
            "tagged": field.get("taggedVersions", "none"),
            "ignorable": field.get("ignorable") in (True, "true"),
            "default": _default(field),
        }
        _fields(field.get("fields", common.get(field["type"].removeprefix("[]"), [])), common, here, fields)


def _default(field: dict[str, Any]) -> Any:
    """The value of a field that is left out. Structs are null or made of their fields' defaults, arrays null or empty."""
    kind, text = field["type"], field.get("default")
    if text == "null" or kind == "records":
        return None
    if kind.startswith("[]") or kind[0].isupper():
        return kind[:2] if kind.startswith("[]") else "struct"
    if kind in ("string", "bytes"):
        return text or ""
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "float64":
        return float(text or 0)
    return 0 if kind == "uuid" else int(str(text or 0), 0)
