"""An index that finds the ACLs for a request fast, however many there are.

How it works. ACLs are kept by pattern: the literal one of a name and `*` are two look-ups, the prefixed ones a look-up for each
length that some prefix has. Within a pattern they are kept by principal, then by host, as two sets of bits: what is denied, and
what is allowed. ALL is all bits; an allowed operation brings those it implies, a denied one does not. So a question costs a few
look-ups and no loop over ACLs.

Rules (Kafka's): a DENY beats every ALLOW, whatever pattern either has. READ, WRITE, DELETE and ALTER allow DESCRIBE,
ALTER_CONFIGS allows DESCRIBE_CONFIGS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final

from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acls import EVERYONE, WILDCARD, Acl, AclPattern

_ALL_BITS: Final = sum(1 << operation for operation in AclOperation if operation > AclOperation.ALL)
_DESCRIBE_TOO: Final = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
IMPLIED: Final = {
    **dict.fromkeys(_DESCRIBE_TOO, AclOperation.DESCRIBE),
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
"""The other operations that an ALLOW of an operation allows."""


class AclVerdict(Enum):
    """The decision of the ACLs about one operation on one resource."""

    ALLOWED = "allowed"
    DENIED = "denied"
    """An ACL denies the operation."""
    NOT_ALLOWED = "not allowed"
    """The resource has ACLs, and none allows it."""
    NO_ACLS = "no ACLs"
    """No ACL is about this resource."""


class _HostRules:
    """The rules of one pattern, principal and host."""

    __slots__ = ("allowed", "denied", "rules")

    def __init__(self) -> None:
        self.rules: set[tuple[AclPermission, AclOperation]] = set()
        self.allowed = 0
        self.denied = 0

    def count(self) -> None:
        self.allowed = self.denied = 0
        for permission, operation in self.rules:
            if permission is AclPermission.DENY:
                self.denied |= _bits(operation)
            else:
                self.allowed |= _bits(operation) | _bits(IMPLIED.get(operation, operation))


def _bits(operation: AclOperation) -> int:
    return _ALL_BITS if operation is AclOperation.ALL else 1 << operation


_Rules = dict[str, dict[str, _HostRules]]
"""Rules by principal, then by host."""


class AclIndex:
    """A set of ACLs, indexed for look-ups."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._literal: dict[tuple[int, str], _Rules] = {}
        self._prefixed: dict[tuple[int, str], _Rules] = {}
        self._length_counts: dict[int, dict[int, int]] = {}
        """The number of prefixed patterns of each length, by resource type."""
        for acl in acls:
            self.add(acl)

    def add(self, acl: Acl) -> None:
        pattern = acl.pattern
        table = self._table(pattern)
        key = pattern.resource_type, pattern.name
        rules = table.get(key)
        if rules is None:
            rules = table[key] = {}
            if table is self._prefixed:
                lengths = self._length_counts.setdefault(pattern.resource_type, {})
                lengths[len(pattern.name)] = lengths.get(len(pattern.name), 0) + 1
        host_rules = rules.setdefault(acl.principal, {}).setdefault(acl.host, _HostRules())
        host_rules.rules.add((acl.permission, acl.operation))
        host_rules.count()

    def remove(self, acl: Acl) -> None:
        """Removes an ACL. Raises KeyError when it is absent."""
        pattern = acl.pattern
        table = self._table(pattern)
        key = pattern.resource_type, pattern.name
        rules = table[key]
        hosts = rules[acl.principal]
        hosts[acl.host].rules.remove((acl.permission, acl.operation))
        hosts[acl.host].count()
        if not hosts[acl.host].rules:
            del hosts[acl.host]
        if not hosts:
            del rules[acl.principal]
        if not rules:
            del table[key]
            if table is self._prefixed:
                lengths = self._length_counts[pattern.resource_type]
                lengths[len(pattern.name)] -= 1
                if not lengths[len(pattern.name)]:
                    del lengths[len(pattern.name)]

    def verdict(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> AclVerdict:
        """Decides by the ACLs whether a principal may do an operation. `host` has the form of `canonical_host`."""
        bit = 1 << operation
        is_known = is_allowed = False
        for rules in self._about(resource_type, name):
            is_known = True
            for who in (principal, EVERYONE):
                hosts = rules.get(who)
                if hosts is None:
                    continue
                for where in (host, WILDCARD):
                    host_rules = hosts.get(where)
                    if host_rules is not None:
                        if host_rules.denied & bit:
                            return AclVerdict.DENIED
                        is_allowed = is_allowed or bool(host_rules.allowed & bit)
        if is_allowed:
            return AclVerdict.ALLOWED
        return AclVerdict.NOT_ALLOWED if is_known else AclVerdict.NO_ACLS

    def is_allowed_by(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource: AclPattern,
        means: Callable[[AclPattern, str], bool],
    ) -> bool:
        """Tells whether an ALLOW covers the resource by a pattern that `means(pattern, name)` accepts. Ignores DENYs."""
        bit = 1 << operation
        return any(
            means(pattern, resource.name)
            and any(host_rules.allowed & bit for host_rules in _of(rules, principal, host))
            for pattern, rules in self._patterns_about(resource.resource_type, resource.name)
        )

    def is_allowed_somewhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Tells whether it is allowed on any resource of the type that there could be (KIP-679). Looks at all patterns of the
        type.
        """
        allowed: dict[PatternType, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        denied: dict[PatternType, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        exact = 1 << operation
        for pattern_type, table in (
            (PatternType.LITERAL, self._literal),
            (PatternType.PREFIXED, self._prefixed),
        ):
            for (kind, name), rules in table.items():
                if kind != resource_type:
                    continue
                for host_rules in _of(rules, principal, host):
                    if host_rules.denied & exact:
                        denied[pattern_type].add(name)
                    if host_rules.allowed & exact:
                        allowed[pattern_type].add(name)
        if WILDCARD in denied[PatternType.LITERAL]:
            return False
        if WILDCARD in allowed[PatternType.LITERAL]:
            return True
        free = allowed[PatternType.LITERAL] - denied[PatternType.LITERAL] | allowed[PatternType.PREFIXED]
        refused = denied[PatternType.PREFIXED]
        return any(not any(name[:length] in refused for length in range(1, len(name) + 1)) for name in free)

    def deciding(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> list[Acl]:
        """Returns the ACLs that decide `verdict`: the DENYs if there are any, else the ALLOWs. For people: it
        is not as fast."""
        bit = 1 << operation
        denying: list[Acl] = []
        allowing: list[Acl] = []
        for acl in self:
            pattern = acl.pattern
            if (
                pattern.resource_type != resource_type
                or not pattern.covers(name)
                or acl.principal not in (principal, EVERYONE)
                or acl.host not in (host, WILDCARD)
            ):
                continue
            if acl.permission is AclPermission.DENY:
                if _bits(acl.operation) & bit:
                    denying.append(acl)
            elif (_bits(acl.operation) | _bits(IMPLIED.get(acl.operation, acl.operation))) & bit:
                allowing.append(acl)
        return denying or allowing

    def __iter__(self) -> Iterator[Acl]:
        for pattern_type, table in (
            (PatternType.LITERAL, self._literal),
            (PatternType.PREFIXED, self._prefixed),
        ):
            for (kind, name), rules in table.items():
                pattern = AclPattern(AclResourceType(kind), name, pattern_type)
                for principal, hosts in rules.items():
                    for host, host_rules in hosts.items():
                        for permission, operation in host_rules.rules:
                            yield Acl(pattern, principal, host, operation, permission)

    def _table(self, pattern: AclPattern) -> dict[tuple[int, str], _Rules]:
        return self._prefixed if pattern.pattern_type is PatternType.PREFIXED else self._literal

    def _about(self, resource_type: AclResourceType, name: str) -> Iterator[_Rules]:
        """Yields the rules of every pattern that covers the resource."""
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            rules = self._literal.get((resource_type, literal))
            if rules is not None:
                yield rules
        for length in self._length_counts.get(resource_type, ()):
            if length <= len(name):
                rules = self._prefixed.get((resource_type, name[:length]))
                if rules is not None:
                    yield rules

    def _patterns_about(
        self, resource_type: AclResourceType, name: str
    ) -> Iterator[tuple[AclPattern, _Rules]]:
        """Yields the rules about a resource with their patterns. Slower: for few resources."""
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            rules = self._literal.get((resource_type, literal))
            if rules is not None:
                yield AclPattern(resource_type, literal), rules
        for length in self._length_counts.get(resource_type, ()):
            if length <= len(name):
                rules = self._prefixed.get((resource_type, name[:length]))
                if rules is not None:
                    yield AclPattern(resource_type, name[:length], PatternType.PREFIXED), rules


def _of(rules: _Rules, principal: str, host: str) -> Iterator[_HostRules]:
    for who in (principal, EVERYONE):
        hosts = rules.get(who)
        if hosts is not None:
            for where in (host, WILDCARD):
                host_rules = hosts.get(where)
                if host_rules is not None:
                    yield host_rules
