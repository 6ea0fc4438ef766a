"""A lint rule: every API says who may ask for what. `python -m tests.lint.access_table`.

What is reported: an API without rows in `protocol/access.py`; rows of an API that does not exist; a row whose field is not in
the message; and an API whose rows ask for something else than its column of ACLs in `protocol/api.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from odradek.protocol import APIS, Api
from odradek.protocol.access import ACCESS, AccessRule, Refusal
from odradek.protocol.schema import ArrayKind, StructKind


def findings(
    apis: Mapping[int, Api] = APIS, access: Mapping[str, tuple[AccessRule, ...]] = ACCESS
) -> Iterator[str]:
    """One line for each API or row that breaks the rule."""
    names = {api.name for api in apis.values()}
    yield from (f"{name}: rows of access without an API" for name in access if name not in names)
    for api in apis.values():
        rules = access.get(api.name)
        if rules is None:
            yield f"{api.name}: no rows in protocol/access.py: who may ask for it?"
            continue
        for rule in rules:
            in_answer = rule.refusal in (Refusal.OMITTED, Refusal.SHOWN)
            message = api.response if in_answer else api.request
            if rule.field not in ("", "*") and not _has(message, rule.field):
                yield f"{api.name}: {message.__name__} has no field {rule.field}"
            if rule.refusal is Refusal.ELEMENT and not _has(api.response, rule.answer):
                yield f"{api.name}: {api.response.__name__} has no array {rule.answer}"
        asked = {acl for group in api.acls for acl in group}
        refusing = {
            acl
            for rule in rules
            if rule.refusal is not Refusal.SHOWN or rule.apart
            for acl in rule.alternatives
        }
        shown = {acl for rule in rules if rule.refusal is Refusal.SHOWN for acl in rule.alternatives}
        if not asked <= refusing or not refusing - shown <= asked:
            yield f"{api.name}: its rows ask for {_text(refusing)}, its column of ACLs for {_text(asked)}"


def _has(message: Any, path: str) -> bool:
    cls = message
    for part in path.split("."):
        name = part.removesuffix("[]")
        field = next((field for field in cls.FIELDS if field.name == name), None)
        if field is None:
            return False
        kind = field.kind.element if isinstance(field.kind, ArrayKind) else field.kind
        cls = kind.cls if isinstance(kind, StructKind) else None
    return True


def _text(acls: set[Any]) -> str:
    return ", ".join(sorted(f"{acl.operation.name} {acl.resource.name}" for acl in acls)) or "nothing"


def main() -> int:
    lines = list(findings())
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
