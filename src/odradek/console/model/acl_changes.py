"""What a change of access rules changes for whom: decisions before and after, compared. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.protocol.acls import OPERATIONS_OF, AclOperation, AclResourceType, PatternType
from odradek.security.acl_decision import AclJudge
from odradek.security.acls import EVERYONE, WILDCARD, Acl, AclPattern

PRINCIPALS_MAX: Final = 200
RESOURCES_MAX: Final = 20
EFFECTS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEffect:
    """One thing that a principal may do after a change and might not before, or the other way round."""

    principal: str
    """`User:*` means every user that no rule names."""
    operation: AclOperation
    resource: str
    is_allowed: bool
    """What is decided after the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEffects:
    """The effects of a change, and what was compared for them."""

    effects: tuple[AclEffect, ...]
    left_out: int
    """The number of effects that are not listed."""
    principals: int
    resources: tuple[str, ...]
    """The resources that were compared: of a rule about many, only some."""
    is_partial: bool
    """Whether principals or resources were left out, since there are too many."""


def effects_of(
    before: Collection[Acl],
    after: Collection[Acl],
    changed: Sequence[Acl],
    settings: Mapping[str, str] | None,
    known_names: Mapping[AclResourceType, Iterable[str]],
) -> AclEffects:
    """Compares the decisions about the resources of the changed rules, for everyone that rules name and for everyone else.

    `known_names` are names of resources that exist: a rule about a prefix is compared on those that begin so.
    """
    pattern = changed[0].pattern
    kind = pattern.resource_type
    resources, more_resources = _resources(pattern, known_names.get(kind, ()))
    named = {acl.principal for acl in (*before, *after)}
    principals = sorted({acl.principal for acl in changed} | {EVERYONE})
    principals += sorted(named - set(principals))
    hosts = sorted({acl.host for acl in changed})
    judges = AclJudge(before, settings), AclJudge(after, settings)
    effects: list[AclEffect] = []
    left_out = 0
    for principal in principals[:PRINCIPALS_MAX]:
        for resource in resources:
            for operation in OPERATIONS_OF.get(kind, ()):
                for host in hosts:
                    was, becomes = (
                        judge.judge(principal, host, operation, kind, resource)[0] for judge in judges
                    )
                    if was == becomes:
                        continue
                    effect = AclEffect(
                        principal=principal, operation=operation, resource=resource, is_allowed=becomes
                    )
                    if effect in effects[-len(hosts) :]:
                        continue
                    if len(effects) < EFFECTS_MAX:
                        effects.append(effect)
                    else:
                        left_out += 1
    return AclEffects(
        effects=tuple(effects),
        left_out=left_out,
        principals=min(len(principals), PRINCIPALS_MAX),
        resources=tuple(resources),
        is_partial=more_resources or len(principals) > PRINCIPALS_MAX,
    )


def _resources(pattern: AclPattern, known: Iterable[str]) -> tuple[list[str], bool]:
    if pattern.pattern_type is not PatternType.PREFIXED and pattern.name != WILDCARD:
        return [pattern.name], False
    matching = sorted(name for name in known if pattern.covers(name))
    return matching[:RESOURCES_MAX] or [pattern.name], len(matching) > RESOURCES_MAX


def operation_word(operation: AclOperation) -> str:
    """Returns the operation as commands spell it: `describe-configs`."""
    return operation.name.lower().replace("_", "-")


KIND_WORDS: Final = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "cluster": AclResourceType.CLUSTER,
    "transactional-id": AclResourceType.TRANSACTIONAL_ID,
    "token": AclResourceType.DELEGATION_TOKEN,
    "user": AclResourceType.USER,
}
"""The types of resources, as commands spell them."""
KIND_NAMES: Final = {kind: word for word, kind in KIND_WORDS.items()}
OPERATION_WORDS: Final = {
    operation_word(operation): operation for operation in (AclOperation.ALL, *list(AclOperation)[3:])
}
