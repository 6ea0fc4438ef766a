"""Which requests become audit events: changes with their outcome, and data access where a rule asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from odradek.broker.audit.trail import AuditTrail
from odradek.broker.cluster.forwarded_apis import CHANGES
from odradek.broker.requests.context import ApiHandler, BrokerContext, HeldResponse, RequestContext
from odradek.broker.requests.refusals import refusals
from odradek.protocol import Api, Message, api_by_name
from odradek.protocol.access import ACCESS, Refusal
from odradek.protocol.acls import RequiredAcl
from odradek.security.audit import ACCESS_KIND, CHANGE, NAMES_MAX, clipped

_MORE_CHANGES: Final = (
    "AlterReplicaLogDirs",
    "AlterShareGroupOffsets",
    "DeleteGroups",
    "DeleteRecords",
    "DeleteShareGroupOffsets",
    "OffsetDelete",
)
_CHANGE_KEYS: Final = CHANGES | {api_by_name(name).key for name in _MORE_CHANGES}
Response = Message | Awaitable[Message] | HeldResponse | None


class RequestAudit:
    """Watches the handlers of one broker."""

    def __init__(self, trail: AuditTrail) -> None:
        self.trail = trail

    def watched(self, api: Api, served: ApiHandler) -> ApiHandler:
        """Returns the handler; its requests are noted."""

        def change(broker: BrokerContext, context: RequestContext, request: Message) -> Response:
            return self._change(api, context, request, served.handle(broker, context, request))

        def access(broker: BrokerContext, context: RequestContext, request: Message) -> Response:
            if self.trail.rules.watches(api.name):
                self._note(ACCESS_KIND, "asked", api, context, request, ())
            return served.handle(broker, context, request)

        if api.internal:
            return served
        return replace(served, handle=change if api.key in _CHANGE_KEYS else access)

    def refused(self, api: Api, context: RequestContext, required: RequiredAcl, name: str) -> None:
        """Notes a refusal of the authorizer."""
        self.trail.refusal(
            **_requester_fields(api, context),
            operation=required.operation.name,
            resources=(f"{required.resource.name}:{name}",),
        )

    def page_refused(self, host: str, path: str) -> None:
        """Notes that the metrics listener refused a page to a peer without a valid token."""
        self.trail.login(
            "failed", principal="", host=host, listener="metrics.listeners", detail=f"no token: {path}"
        )

    def _change(self, api: Api, context: RequestContext, request: Message, response: Response) -> Response:
        if isinstance(response, asyncio.Future):
            response.add_done_callback(
                lambda done: (
                    None
                    if done.cancelled() or done.exception()
                    else self._done(api, context, request, done.result())
                )
            )
            return response
        if isinstance(response, HeldResponse):
            return HeldResponse(self._awaited(api, context, request, response.response))
        if isinstance(response, Awaitable):
            return self._awaited(api, context, request, response)
        self._done(api, context, request, response)
        return response

    async def _awaited(
        self, api: Api, context: RequestContext, request: Message, response: Awaitable[Message | None]
    ) -> Any:
        settled = await response
        self._done(api, context, request, settled)
        return settled

    def _done(self, api: Api, context: RequestContext, request: Message, response: Message | None) -> None:
        codes = (
            ()
            if response is None
            else tuple(sorted({error.code.name for error in islice(refusals(response), 1000)}))
        )
        outcome = "done" if not codes else "failed"
        if any(code.endswith("AUTHORIZATION_FAILED") for code in codes):
            outcome = "refused"
        self._note(CHANGE, outcome, api, context, request, codes)

    def _note(
        self,
        kind: str,
        outcome: str,
        api: Api,
        context: RequestContext,
        request: Message,
        codes: tuple[str, ...],
    ) -> None:
        resources = tuple(islice(_resources(api, context.api_version, request), NAMES_MAX + 1))
        detail = "; ".join(_first(_details(request)))
        if getattr(request, "validate_only", False):
            detail = f"only validated; {detail}" if detail else "only validated"
        asker = _requester_fields(api, context)
        self.trail.note(
            self.trail.event(kind, outcome, **asker, resources=resources, errors=codes, detail=detail)
        )


def _requester_fields(api: Api, context: RequestContext) -> dict[str, object]:
    return {
        "principal": context.principal,
        "client": context.client_id,
        "host": context.client_host,
        "listener": context.listener_name,
        "api": api.name,
        "version": context.api_version,
        "correlation_id": context.correlation_id,
    }


def _resources(api: Api, version: int, request: Message) -> Iterable[str]:
    """Returns the resources that the request names, by the table of access rules."""
    seen: set[str] = set()
    for rule in ACCESS[api.name]:
        if version not in rule.versions or rule.refusal in (Refusal.OMITTED, Refusal.SHOWN):
            continue
        kind = rule.required.resource.name
        for name in (None,) if rule.field in ("", "*") else _values(request, rule.field.split(".")):
            resource = "CLUSTER:kafka-cluster" if name is None else f"{kind}:{name}"
            if resource not in seen:
                seen.add(resource)
                yield resource


def _values(value: object, path: list[str]) -> Iterable[object]:
    part, *rest = path
    below = getattr(value, part.removesuffix("[]"), None)
    items = (below or ()) if part.endswith("[]") else (below,)
    for element in islice(items, NAMES_MAX + 1):
        if rest:
            yield from _values(element, rest)
        elif element not in (None, ""):
            yield element


def _first(texts: Iterable[str]) -> Iterable[str]:
    """Returns the first names and `...` for the others, since a client may send thousands."""
    for count, text in enumerate(texts):
        if count == NAMES_MAX:
            yield "..."
            return
        yield clipped(text)


def _details(request: Message) -> Iterable[str]:
    """Names of settings, of ACLs' parts, of users; no values."""
    for resource in islice(getattr(request, "resources", None) or (), NAMES_MAX + 1):
        names = ", ".join(_first(entry.name for entry in getattr(resource, "configs", None) or ()))
        if names:
            yield f"{clipped(resource.resource_name)}: {names}"
    for creation in getattr(request, "creations", None) or ():
        yield (
            f"{clipped(creation.principal)} from {clipped(creation.host)}: operation {creation.operation} on type "
            f"{creation.resource_type} {clipped(creation.resource_name)!r}, permission {creation.permission_type}"
        )
    for name in ("upsertions", "deletions"):
        for change in getattr(request, name, None) or ():
            yield f"{name} {change.name}"
    for entry in getattr(request, "entries", None) or ():
        whom = _first(f"{part.entity_type} {part.entity_name}" for part in entry.entity)
        yield f"{' and '.join(whom)}: {', '.join(_first(op.key for op in entry.ops))}"
