"""A software bill of materials: what the project's pinned requirements install, as CycloneDX 1.6 JSON.

    python -m tools.sbom [FILE]     # standard output without a file

The components are the distributions of `requirements/*.txt` and all that they bring along, in the versions that are installed
beside this. The same environment always gives the same text: the serial number follows from the components, and there is no
time in it. What the brokers need themselves is `required`; tools, tests, and what extras bring are `optional`.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.requirement_files import requirement_lines

PRODUCT: Final = "odradek"
_NAMESPACE: Final = uuid.UUID("6f1d1c1e-0d2a-5e0b-9a58-0a6a2f5c7f58")


def needed(names: Iterable[str]) -> dict[str, list[str]]:
    """What each distribution needs, by name: of these, and of all that they bring along. Those not installed are left out."""
    needs: dict[str, list[str]] = {}
    waiting = sorted(set(names))
    while waiting:
        name = waiting.pop()
        if name in needs:
            continue
        try:
            written = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        wanted = [requirement for requirement in map(Requirement, written) if _applies(requirement)]
        needs[name] = sorted({canonicalize_name(requirement.name) for requirement in wanted})
        waiting += needs[name]
    return {name: [other for other in others if other in needs] for name, others in needs.items()}


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def bill(needs: Mapping[str, list[str]], required: Iterable[str], version: str) -> dict[str, Any]:
    """`needs` as `needed` gives it; `required`: what is installed with the product itself."""
    own = frozenset(required)
    components = [_component(name, is_required=name in own) for name in sorted(needs)]
    product = {
        "type": "application",
        "bom-ref": f"pkg:pypi/{PRODUCT}@{version}",
        "name": PRODUCT,
        "version": version,
    }
    content = json.dumps([product, components], sort_keys=True)
    references = {component["name"]: component["bom-ref"] for component in components}
    direct = sorted(
        references[name] for name in needs if not any(name in others for others in needs.values())
    )
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, content)}",
        "version": 1,
        "metadata": {"component": product},
        "components": components,
        "dependencies": [
            {"ref": product["bom-ref"], "dependsOn": direct},
            *(
                {"ref": references[name], "dependsOn": sorted(references[other] for other in needs[name])}
                for name in sorted(needs)
            ),
        ],
    }


def _component(name: str, *, is_required: bool) -> dict[str, Any]:
    distribution = metadata.distribution(name)
    reference = f"pkg:pypi/{name}@{distribution.version}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": distribution.version,
        "purl": reference,
        "scope": "required" if is_required else "optional",
    }
    facts = distribution.metadata.json
    licence = facts.get("license_expression") or facts.get("license")
    if isinstance(licence, str) and len(licence.splitlines()) == 1:
        key = "expression" if "license_expression" in facts else "license"
        component["licenses"] = [{key: licence if key == "expression" else {"name": licence}}]
    return component


def project_bill() -> dict[str, Any]:
    pinned = [canonicalize_name(Requirement(text).name) for _, text in requirement_lines()]
    required = set(needed([PRODUCT])) - {PRODUCT}
    return bill(needed([*pinned, *required]), required, metadata.version(PRODUCT))


def main(arguments: list[str]) -> int:
    text = json.dumps(project_bill(), indent=2) + "\n"
    if arguments:
        Path(arguments[0]).parent.mkdir(parents=True, exist_ok=True)
        Path(arguments[0]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
