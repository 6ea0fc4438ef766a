"""The pinned requirements of the project, and what is installed because of them.

    python -m tools.requirement_files     # one line for each finding; exit 1 if there are any

What is reported, without the internet: a requirement that is not pinned (`UNPINNED` has the reasons of others), that comes
from an address instead of a name, or that is pinned twice; one that a file asks for in another version than the one installed;
and an installed distribution with a version that an advisory of `requirements/advisories.txt` names. That list is written by
hand: it grows when an advisory is published, and is no substitute for a scanner that has all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

FOLDER: Final = Path(__file__).parent.parent / "requirements"
ADVISORIES: Final = FOLDER / "advisories.txt"
UNPINNED: Final = {
    "setuptools": "builds the package: any version that can",
    "pandas": "the version that PySpark takes",
    "protobuf": "the version that grpcio-tools takes",
}


@dataclass(frozen=True, slots=True)
class Advisory:
    """Versions of a package that must not be used, and what names the reason."""

    name: str
    affected: SpecifierSet
    identifier: str


def requirement_lines(folder: Path = FOLDER) -> Iterator[tuple[str, str]]:
    """(file and line, requirement) of every file, comments left out."""
    for path in (folder / f"{name}.txt" for name in ("dev", "pipeline", "kerberos", "ksql")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            text = line.partition(" #")[0].strip()
            if text and not text.startswith("#"):
                yield f"{path.name}:{number}", text


def read_advisories(path: Path = ADVISORIES) -> list[Advisory]:
    """ValueError, with the line, for one that cannot be read: `name affected-versions identifier`."""
    advisories = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, affected, identifier = line.split()
            advisories.append(Advisory(canonicalize_name(name), SpecifierSet(affected), identifier))
        except (ValueError, InvalidSpecifier) as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    return advisories


def installed() -> dict[str, str]:
    """Version by name, of the environment that runs this."""
    return {
        canonicalize_name(distribution.metadata["Name"]): distribution.version
        for distribution in metadata.distributions()
    }


def findings(
    lines: Iterator[tuple[str, str]], versions: Mapping[str, str], advisories: list[Advisory]
) -> Iterator[str]:
    seen: dict[str, str] = {}
    for where, text in lines:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            yield f"{where}: {text!r} is no requirement: write name==version"
            continue
        name = canonicalize_name(requirement.name)
        if requirement.url is not None:
            yield f"{where}: {name} comes from an address: name a version"
        pins = [specifier for specifier in requirement.specifier if specifier.operator in ("==", "===")]
        if not pins and name not in UNPINNED:
            yield f"{where}: {name} is not pinned: write {name}=={versions.get(name, 'VERSION')}"
        if name in seen:
            yield f"{where}: {name} is there already, in {seen[name]}"
        seen[name] = where
        version = versions.get(name)
        if version is not None and not requirement.specifier.contains(version, prereleases=True):
            yield f"{where}: {name} {version} is installed: run pip install -r requirements/{where.partition(':')[0]}"
    for advisory in advisories:
        version = versions.get(advisory.name)
        if version is not None and advisory.affected.contains(version, prereleases=True):
            yield f"{advisory.name} {version} is affected by {advisory.identifier} ({advisory.affected}): take another version"


if __name__ == "__main__":
    problems = list(findings(requirement_lines(), installed(), read_advisories()))
    sys.stdout.writelines(f"{line}\n" for line in problems)
    sys.exit(1 if problems else 0)
