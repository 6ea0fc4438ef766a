"""Access rules as Kafka has them (KIP-11, KIP-290): values, what makes a valid one, filters that select some.

A pattern of type LITERAL names one resource, or with the name `*` all of the type; PREFIXED names all whose names begin so.
There are no other patterns: `*` in a longer name is a plain character.

An ACL's host is an address or `*`. Kafka stores a host name, too, and never matches it: here it is refused, because a DENY that
matches nothing is worse than an error. Addresses are kept in one form, so that `::ffff:10.0.0.1` is `10.0.0.1`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.lazy import lazy
from odradek.protocol.acls import CLUSTER_NAME, AclOperation, AclPermission, AclResourceType, PatternType

if TYPE_CHECKING:
    import ipaddress
else:
    ipaddress = lazy("ipaddress")

E = TypeVar("E", bound=IntEnum)

WILDCARD: Final = "*"
"""Every resource of a type, or every host."""
EVERYONE: Final = "User:*"
NAME_LENGTH_MAX: Final = 32_767


class AclPattern(NamedTuple):
    """Which resources an ACL is about."""

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def covers(self, name: str) -> bool:
        """Tells whether the pattern covers a resource of this type with this name."""
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def __str__(self) -> str:
        what = self.resource_type.name
        return f"{what} {self.name}" + (" and longer" if self.pattern_type == PatternType.PREFIXED else "")


class Acl(NamedTuple):
    """One access rule."""

    pattern: AclPattern
    principal: str
    """`User:name`; `User:*` is every user."""
    host: str
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        verb = "may" if self.permission == AclPermission.ALLOW else "may not"
        where = "" if self.host == WILDCARD else f" from {self.host}"
        return f"{self.principal} {verb} {self.operation.name} {self.pattern}{where}"


@lru_cache(maxsize=10_000)
def canonical_host(host: str) -> str:
    """Returns the one form of an address that ACLs are compared in; ValueError for what is no address. `*` stays."""
    if host == WILDCARD:
        return host
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(address if mapped is None else mapped)


def new_acl(
    *,
    resource_type: int,
    resource_name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Acl:
    """Returns a valid ACL for a request's values, or raises INVALID_REQUEST with what is wrong, in Kafka's order."""
    kind = _known(AclResourceType, resource_type, "resource type")
    how = _known(PatternType, pattern_type, "pattern type")
    what = _known(AclOperation, operation, "operation")
    effect = _known(AclPermission, permission, "permission type")
    if kind is AclResourceType.ANY:
        raise _invalid("an ACL is about one resource type: ANY is for filters")
    if how not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid("the pattern type of an ACL is LITERAL or PREFIXED: ANY and MATCH are for filters")
    if what is AclOperation.ANY:
        raise _invalid("an ACL is about one operation, or ALL: ANY is for filters")
    if effect is AclPermission.ANY:
        raise _invalid("an ACL is an ALLOW or a DENY: ANY is for filters")
    if kind is AclResourceType.CLUSTER and resource_name != CLUSTER_NAME:
        raise _invalid(f"the cluster's only name is {CLUSTER_NAME}, not {resource_name!r}")
    if not resource_name:
        raise _invalid("the resource has no name")
    if len(resource_name) > NAME_LENGTH_MAX:
        raise _invalid(f"the resource's name is longer than {NAME_LENGTH_MAX} characters")
    type_, colon, name = principal.partition(":")
    if not colon or not type_ or not name:
        raise _invalid(
            f"{principal!r:.250} is no principal: write a type, a colon and a name, such as User:alice"
        )
    return Acl(
        pattern=AclPattern(kind, resource_name, how),
        principal=principal,
        host=_host(host),
        operation=what,
        permission=effect,
    )


def _host(host: str) -> str:
    try:
        return canonical_host(host)
    except ValueError:
        raise _invalid(f"{host!r} is no address: the host of an ACL is an IP address or *") from None


def _known(kind: type[E], value: int, what: str) -> E:
    try:
        known = kind(value)
    except ValueError:
        raise _invalid(f"{what} {value} is not known") from None
    if known.value == 0:
        raise _invalid(f"{what} {value} is not known")
    return known


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A filter that selects ACLs; None and ANY select all. `new_filter` makes one from the fields of a request."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    @classmethod
    def only(cls, acl: Acl) -> AclFilter:
        """Returns the filter that selects exactly this ACL."""
        return cls(
            resource_type=acl.pattern.resource_type,
            name=acl.pattern.name,
            pattern_type=acl.pattern.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission=acl.permission,
        )

    def selects(self, acl: Acl) -> bool:
        """Tells whether the filter selects this ACL."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.pattern.resource_type)
            and self._selects_pattern(acl.pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _selects_pattern(self, pattern: AclPattern) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        return (
            pattern.covers(self.name) if self.pattern_type is PatternType.MATCH else pattern.name == self.name
        )


def new_filter(
    *,
    resource_type: int,
    name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """Returns a filter. Raises INVALID_REQUEST for numbers without a meaning."""
    return AclFilter(
        resource_type=_known(AclResourceType, resource_type, "resource type"),
        name=name,
        pattern_type=_known(PatternType, pattern_type, "pattern type"),
        principal=principal,
        host=None if host is None else _host_in_filter(host),
        operation=_known(AclOperation, operation, "operation"),
        permission=_known(AclPermission, permission, "permission type"),
    )


def _host_in_filter(host: str) -> str:
    """Returns the host for a filter; text that is no address selects nothing, since no ACL has it."""
    try:
        return canonical_host(host)
    except ValueError:
        return host
