"""Decides whether a principal may do something, and names what decides it: the question of `acl explain`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from odradek.model.errors import ConfigError
from odradek.protocol.acls import AclOperation, AclResourceType
from odradek.security.acl_index import AclIndex, AclVerdict
from odradek.security.acls import Acl, AclPattern
from odradek.security.authorizer import closed_suffixes, parse_super_users
from odradek.security.closed_topics import is_closed, is_of_the_system, means

DECIDING_SETTINGS: Final = (
    "authorizer.class.name",
    "super.users",
    "allow.everyone.if.no.acl.found",
    "odradek.closed.topic.suffixes",
)
"""The settings of brokers that a decision depends on, in addition to the rules."""


class DecidedBy(StrEnum):
    """What decides."""

    SUPER_USER = "super_user"
    RULES = "rules"
    NO_RULE_ALLOWS = "no_rule_allows"
    """Rules about the resource exist, and none allows the operation."""
    NO_RULES = "no_rules"
    """No rule is about the resource: `allow.everyone.if.no.acl.found` decides."""
    CLOSED = "closed"
    """The topic is closed, and only rules that name it count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDecision:
    """Whether the operation is allowed, and why."""

    is_allowed: bool
    by: DecidedBy
    rules: tuple[Acl, ...] = ()
    """The rules that decide, where rules do."""
    knows_settings: bool = True
    """Whether the brokers' settings were readable. Without them, super users are unknown."""


class AclJudge:
    """Decides by ACLs and by the brokers' settings, which are None where they are not shown. Made once for many questions."""

    def __init__(self, acls: Iterable[Acl], settings: Mapping[str, str] | None) -> None:
        known = settings or {}
        self._knows_settings = settings is not None
        self._index = AclIndex(acls)
        self._super_users = _super_users(known)
        self._is_free = known.get("allow.everyone.if.no.acl.found") == "true"
        self._closed_suffixes = closed_suffixes(known)

    def judge(
        self, principal: str, host: str, operation: AclOperation, kind: AclResourceType, name: str
    ) -> tuple[bool, DecidedBy]:
        """Returns whether it is allowed, and what decides. Takes microseconds, however many ACLs there are."""
        if principal in self._super_users:
            return True, DecidedBy.SUPER_USER
        verdict = self._index.verdict(principal, host, operation, kind, name)
        if verdict is AclVerdict.NO_ACLS:
            by, is_allowed = DecidedBy.NO_RULES, self._is_free
        else:
            is_allowed = verdict is AclVerdict.ALLOWED
            by = DecidedBy.NO_RULE_ALLOWS if verdict is AclVerdict.NOT_ALLOWED else DecidedBy.RULES
        if is_allowed and self._is_closed(operation, kind, name):
            if verdict is AclVerdict.NO_ACLS:
                is_allowed = not is_of_the_system(name)
            else:
                resource = AclPattern(kind, name)
                is_allowed = self._index.is_allowed_by(principal, host, operation, resource, means)
            by = by if is_allowed else DecidedBy.CLOSED
        return is_allowed, by

    def decide(
        self, principal: str, host: str, operation: AclOperation, kind: AclResourceType, name: str
    ) -> AclDecision:
        """Returns the decision with the rules that it follows from. Reads every ACL."""
        is_allowed, by = self.judge(principal, host, operation, kind, name)
        rules: list[Acl] = []
        if by is DecidedBy.RULES:
            rules = self._index.deciding(principal, host, operation, kind, name)
            if is_allowed and self._is_closed(operation, kind, name):
                rules = [acl for acl in rules if means(acl.pattern, name)]
        return AclDecision(
            is_allowed=is_allowed, by=by, rules=tuple(rules), knows_settings=self._knows_settings
        )

    def _is_closed(self, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        return kind is AclResourceType.TOPIC and is_closed(name, operation, self._closed_suffixes)


def _super_users(settings: Mapping[str, str]) -> frozenset[str]:
    try:
        return parse_super_users(settings.get("super.users", ""))
    except ConfigError:
        return frozenset()
