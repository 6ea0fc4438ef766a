"""AlterClientQuotas (49). Versions 0-1: set and remove quotas of users, client ids and addresses; effective at once (KIP-546).

Each entity succeeds or fails by itself. One that is named twice is refused, once. The cluster has quotas for `ENTITIES_MAX`
entities at most: every broker has all of them in memory.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.documents import CLIENT_QUOTAS
from odradek.cluster.image import ClientQuotas
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.parted import PartedEdit
from odradek.protocol.messages.quotas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryResult,
)
from odradek.runtime.turns import Turn
from odradek.security.quota_entities import (
    ENTITY_TYPES,
    Entity,
    QuotaChange,
    QuotaKind,
    changed,
    check_change,
    entity_of,
)

ENTITIES_MAX: Final = 50_000

Named = tuple[tuple[str, str | None], ...]
"""An entity as the request names it, right or wrong."""


async def handle(
    broker: BrokerContext, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    entries: dict[Named, EntryData] = {}
    wanted: dict[Named, tuple[Entity, list[QuotaChange]]] = {}
    refused: dict[Named, KafkaError] = {}
    turn = broker.turns.begin()
    for entry in request.entries:
        await turn.step()
        parts = entry.entity[: len(ENTITY_TYPES) + 1]  # whatever else it names: it is refused
        named = tuple(sorted(((part.entity_type, part.entity_name) for part in parts), key=str))
        try:
            if named in entries:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this quota entity twice")
            wanted[named] = _checked(entry)
        except KafkaError as error:
            refused[named] = error.as_outcome()
            wanted.pop(named, None)
        entries[named] = entry
    if wanted:
        changes = dict(wanted.values())
        try:
            await broker.controller.alter_in_turns(
                CLIENT_QUOTAS,
                lambda before: _after(turn, before, changes),
                validate_only=request.validate_only,
            )
        except KafkaError as error:
            refused.update(dict.fromkeys(wanted, error.as_outcome()))
    results = await turn.map(lambda named: _result(entries[named], refused.get(named)), entries)
    return AlterClientQuotasResponse(entries=results)


def _checked(entry: EntryData) -> tuple[Entity, list[QuotaChange]]:
    for elements, count_max, name in (
        (entry.entity, len(ENTITY_TYPES), "parts of an entity"),
        (entry.ops, len(QuotaKind), "quotas"),
    ):
        if len(elements) > count_max:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the entry has {len(elements)} {name}: there are at most {count_max}",
            )
    entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
    changes = [QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops]
    named = {change.key for change in changes}
    if len(named) < len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the entry names a quota more than once")
    for change in changes:
        check_change(entity, change)
    return entity, changes


async def _after(turn: Turn, before: ClientQuotas, wanted: dict[Entity, list[QuotaChange]]) -> ClientQuotas:
    """Raises POLICY_VIOLATION when there would be too many."""
    edit = PartedEdit(before)
    for entity, changes in wanted.items():
        await turn.step()
        edit.change(entity, changed(before.get(entity, {}), changes) or None)
    after = edit.mapping()
    if len(after) > max(ENTITIES_MAX, len(before)):
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the cluster would have quotas for {len(after)} entities, and may have them for {ENTITIES_MAX}: "
            "set default ones instead, or remove some first",
        )
    return after


def _result(entry: EntryData, error: KafkaError | None) -> EntryResult:
    return EntryResult(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=entry.entity,
    )


SERVED = ApiHandler(49, handle)
