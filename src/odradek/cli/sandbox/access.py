"""The lesson of a playground with locked doors: who may write, who is refused, and what the audit records
about it.

There are two users: the admin, as whom the sandbox itself works, and a visitor who may write to `orders` and read it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from odradek.cli.sandbox.playground import Playground, client_names
from odradek.cli.sandbox.story import GROUP, TOPIC, Claim, Step, StoryText
from odradek.cli.serving.secure import client_settings, write_private
from odradek.client import Producer
from odradek.client.admin.users import NewPassword
from odradek.config.files.properties import format_properties
from odradek.model.errors import ErrorCode, OdradekError
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acls import Acl, AclFilter, AclPattern

LESSON: Final = "access"
FORBIDDEN_TOPIC: Final = "payroll"
AUDIT_TOPIC: Final = "__odradek_audit"
VISITOR: Final = "visitor"
_PARTITIONS: Final = 3
_ANSWER_SECONDS: Final = 20.0
_PASSWORD_BYTES: Final = 12


class Doors:
    """The visitor, and the files by which both users log in. `playground` runs, and is secured."""

    def __init__(self, playground: Playground) -> None:
        self._playground = playground
        self._password = secrets.token_urlsafe(_PASSWORD_BYTES)

    def open(self) -> tuple[Path, Path]:
        """Make topics, visitor and rules; the files of the admin and of the visitor, for `ODRADEK_CLIENT_CONFIG`."""
        playground = self._playground
        playground.ensure(TOPIC, _PARTITIONS, min_insync_replicas="2")
        playground.ensure(FORBIDDEN_TOPIC, _PARTITIONS)
        playground.admin.alter_users({VISITOR: NewPassword(password=self._password)})
        playground.admin.delete_acls([AclFilter(principal=f"User:{VISITOR}")])  # of an earlier lesson
        playground.admin.create_acls(
            [
                _rule(AclResourceType.TOPIC, TOPIC, AclOperation.WRITE),
                _rule(AclResourceType.TOPIC, TOPIC, AclOperation.READ),
                _rule(AclResourceType.GROUP, GROUP, AclOperation.READ),
                _rule(AclResourceType.TOPIC, FORBIDDEN_TOPIC, AclOperation.DESCRIBE),
            ]
        )
        files = (playground.keys / "admin.properties", playground.keys / "visitor.properties")
        for file, settings in zip(files, (playground.admin_settings, self._settings()), strict=True):
            named = {"bootstrap.servers": playground.fleet.bootstrap, **settings}
            write_private(file, format_properties(named).encode())
        return files

    def allow(self) -> None:
        """Let the visitor write to what was forbidden."""
        self._playground.admin.create_acls(
            [_rule(AclResourceType.TOPIC, FORBIDDEN_TOPIC, AclOperation.WRITE)]
        )

    def write(self, topic: str, *, password: str | None = None) -> ErrorCode | None:
        """Writes one record as the visitor; returns the error by which it was refused."""
        login = client_names(self._settings(password))
        with Producer(self._playground.address, retries=0, enable_idempotence=False, **login) as producer:
            try:
                producer.send(topic, "from the visitor").result(_ANSWER_SECONDS)
            except OdradekError as error:
                return getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
        return None

    def events(self) -> list[dict[str, Any]]:
        """Returns the events of the audit, the oldest first."""
        values = [json.loads(value) for _, _, value in self._playground.read_all(AUDIT_TOPIC)]
        return sorted(values, key=lambda event: event["time_ms"])

    def _settings(self, password: str | None = None) -> dict[str, str]:
        return client_settings(self._playground.keys, password or self._password, user=VISITOR)


def access(playground: Playground) -> Iterator[Step]:
    doors = Doors(playground)
    yield StoryText("access.intro")
    playground.put_right(TOPIC)
    doors.open()
    accepted = doors.write(TOPIC)
    yield Claim("access.allowed", accepted is None, {"topic": TOPIC})
    refused = doors.write(FORBIDDEN_TOPIC)
    yield Claim("access.refused", refused is ErrorCode.TOPIC_AUTHORIZATION_FAILED, {"error": _name(refused)})
    stranger = doors.write(TOPIC, password="not the password")
    yield Claim(
        "access.stranger", stranger is ErrorCode.SASL_AUTHENTICATION_FAILED, {"error": _name(stranger)}
    )
    event = playground.until("the refusal is in the audit", lambda: _refusals(doors))[0]
    yield Claim(
        "access.audited",
        event["outcome"] == "refused",
        {"principal": event["principal"], "api": event["api"], "resources": ", ".join(event["resources"])},
    )
    doors.allow()
    yield Claim("access.granted", doors.write(FORBIDDEN_TOPIC) is None, {"topic": FORBIDDEN_TOPIC})


def _refusals(doors: Doors) -> list[dict[str, Any]]:
    principal = f"User:{VISITOR}"
    return [
        event for event in doors.events() if (event["kind"], event["principal"]) == ("refusal", principal)
    ]


def _name(code: ErrorCode | None) -> str:
    return code.name if code is not None else "none"


def _rule(resource: AclResourceType, name: str, operation: AclOperation) -> Acl:
    pattern = AclPattern(resource, name, PatternType.LITERAL)
    return Acl(pattern, f"User:{VISITOR}", "*", operation, AclPermission.ALLOW)
