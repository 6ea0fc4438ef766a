"""The gate: what a request may do is decided before its handler sees it, by the table of access rules (`protocol/access.py`).

How it works. The rules of an API and a version are made into steps once. A step looks at one field: it
refuses the request, takes elements out of an array, or notes what the response must leave out. The handler
serves the remaining elements and does not know about the others; the refused elements are added to its
response, in the form of `requests/refused_answers.py`. Rules that the table cannot express are in
`particular.py`, one function for each such API. Where access may end while a request is served (Fetch,
ShareFetch), the handler itself asks `context.access`.

Without an authorizer there is no gate, and nothing here runs. Steps yield after each element, so that a request that names
100,000 topics takes turns with others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final, TypeVar

from odradek.broker.access import conditions, particular
from odradek.broker.access.admission import Admission
from odradek.broker.cluster.image_age import ImageAge
from odradek.broker.requests.access import Access
from odradek.broker.requests.context import ApiHandler, BrokerContext, HeldResponse, RequestContext
from odradek.net.replies import PeerError
from odradek.protocol import Api, Message, Struct
from odradek.protocol.access import ACCESS, AccessRule, Refusal
from odradek.protocol.acls import RequiredAcl
from odradek.security.authorizer import AclAuthorizer, Authorizer
from odradek.security.principals import BROKER_ITSELF, Requester

T = TypeVar("T")
S = TypeVar("S", bound=Struct)
Response = Message | Awaitable[Message] | HeldResponse | None
_INLINE_STEPS: Final = 500


Step = Callable[[Admission], Generator[None, None, None]]


class Gate:
    """The gate of one broker that has an authorizer."""

    def __init__(
        self,
        broker: BrokerContext,
        authorizer: Authorizer,
        report: Callable[[Api, RequestContext, RequiredAcl, str], None] = lambda api, context, acl, name: (
            None
        ),
        *,
        image_age: ImageAge | None = None,
    ) -> None:
        """`report` is called with refusals. `image_age`: of the cluster's ACLs, where it is bounded."""
        self._image_age = image_age
        self.authorizer = authorizer
        self._broker = broker
        self._report = report

    def report_to(self, report: Callable[[Api, RequestContext, RequiredAcl, str], None]) -> None:
        """Sets the callback for refusals; see `RequestGate`."""
        self._report = report

    def access_of(self, api: Api, context: RequestContext, asker: Requester) -> Access:
        access = Access(self.authorizer, asker, partial(self._report, api, context))
        if self._image_age is not None:
            access.check_rules = partial(self._check_age, self._image_age, asker.principal)
        return access

    def _check_age(self, image_age: ImageAge, principal: str) -> None:
        """Raises PeerError when a rule that this broker uses may have been removed too long ago. Super users need no rule."""
        authorizer = self.authorizer
        if (
            not image_age.is_over
            or not isinstance(authorizer, AclAuthorizer)
            or authorizer.is_super_user(principal)
        ):
            return
        raise PeerError(
            f"{principal} is not served: the newest ACLs this broker knows of are {image_age.age_s:.0f} s old, because the "
            "controller, or the registry, does not answer (odradek.access.max.age.ms)"
        )

    def guarded(self, api: Api, served: ApiHandler) -> ApiHandler:
        """Returns the handler with the access check before it; see `RequestGate`."""

        def handle(broker: BrokerContext, context: RequestContext, request: Message) -> Response:
            return self._serve(api, served, context, request)

        return replace(served, handle=handle) if ACCESS[api.name] else served

    def _serve(self, api: Api, served: ApiHandler, context: RequestContext, request: Message) -> Response:
        if context.requester.principal == BROKER_ITSELF:
            return served.handle(self._broker, context, request)
        access = self.access_of(api, context, context.requester)
        if access.check_rules is not None:
            access.check_rules()
        context = context._replace(access=access)
        admission = Admission(self._broker, context, access, api, request)
        work = _admit(admission)
        if _advance(work) is _UNFINISHED:
            return HeldResponse(self._serve_later(work, admission, served))
        return self._handled(admission, served)

    async def _serve_later(
        self, work: Generator[None, None, None], admission: Admission, served: ApiHandler
    ) -> Message | None:
        await self._broker.turns.begin().drive(work)
        response = self._handled(admission, served)
        if isinstance(response, HeldResponse):
            return await response.response
        return await response if isinstance(response, Awaitable) else response

    def _handled(self, admission: Admission, served: ApiHandler) -> Response:
        is_unanswered = admission.api.name == "Produce" and admission.request.acks == 0
        if admission.answer is not None:
            if is_unanswered:
                particular.refuse_unanswered(admission)
            return self._finished(admission, admission.answer)
        response = served.handle(self._broker, admission.context, admission.request)
        if not admission.finishes and not admission.refused:
            return response
        if response is None:
            particular.refuse_unanswered(admission)
            return None
        if isinstance(response, HeldResponse):
            return HeldResponse(self._finished_later(admission, response.response))
        if isinstance(response, asyncio.Future):
            return asyncio.ensure_future(self._finished_future(admission, response))
        if isinstance(response, Awaitable):
            return self._finished_coroutine(admission, response)
        return self._finished(admission, response)

    def _finished(self, admission: Admission, response: Message) -> Message | Awaitable[Message]:
        work = admission.finishing(response)
        finished = _advance(work)
        if finished is _UNFINISHED:
            return self._broker.turns.begin().drive(work)
        filtered: Message = finished
        return filtered

    async def _finished_later(
        self, admission: Admission, response: Awaitable[Message | None]
    ) -> Message | None:
        settled = await response
        if settled is None:
            particular.refuse_unanswered(admission)
            return None
        return await self._broker.turns.begin().drive(admission.finishing(settled))

    async def _finished_coroutine(self, admission: Admission, response: Awaitable[Message]) -> Message:
        settled = await response
        return await self._broker.turns.begin().drive(admission.finishing(settled))

    async def _finished_future(self, admission: Admission, response: asyncio.Future[Message]) -> Message:
        try:
            settled = await response
        except asyncio.CancelledError:
            response.cancel()
            raise
        return await self._broker.turns.begin().drive(admission.finishing(settled))


_UNFINISHED: Final[Any] = object()


def _advance(work: Generator[None, None, T]) -> T:
    """Returns the generator's result, if it takes few steps; else `_UNFINISHED`."""
    try:
        for _ in range(_INLINE_STEPS):
            next(work)
    except StopIteration as end:
        value: T = end.value
        return value
    unfinished: T = _UNFINISHED
    return unfinished


def _admit(admission: Admission) -> Generator[None, None, None]:
    for step in _steps(admission.api, admission.version):
        yield from step(admission)
        if admission.answer is not None:
            return


@cache
def _steps(api: Api, version: int) -> tuple[Step, ...]:
    rules = [rule for rule in ACCESS[api.name] if version in rule.versions]
    steps = [_step_of(rule) for rule in rules if not rule.apart]
    own = particular.STEPS.get(api.name)
    return (*steps, own) if own is not None else tuple(steps)


def _step_of(rule: AccessRule) -> Step:
    if rule.refusal is Refusal.ELEMENT:
        array, _, inner = rule.field.partition("[]")
        return partial(_remove_denied, rule, array, inner)
    if rule.refusal is Refusal.OMITTED:
        return partial(_note_omission, rule)
    return partial(_check_request, rule)


# -- the whole request


def _check_request(rule: AccessRule, admission: Admission) -> Generator[None, None, None]:
    if rule.when and not conditions.of_request(rule.when, admission):
        return
    if rule.field in ("", "*"):
        if not admission.access.may_any(rule.alternatives, None):
            admission.refuse(rule.code)
        return
    array, is_array, inner = rule.field.partition("[]")
    value = getattr(admission.request, array)
    names = value or () if is_array else () if value is None else (value,)
    for name in names:
        yield
        resource = getattr(name, inner.removeprefix(".")) if inner else name
        if not admission.access.may_any(rule.alternatives, resource):
            admission.refuse(rule.code)
            return


# -- elements


def _remove_denied(
    rule: AccessRule, array: str, inner: str, admission: Admission
) -> Generator[None, None, None]:
    elements = getattr(admission.request, array)
    if not elements or (rule.when and not conditions.of_request(rule.when, admission)):
        return
    field_name = inner.removeprefix(".")
    image = admission.broker.image
    by_id = field_name.endswith("topic_id")
    refused: list[object] = []
    for element in elements:
        yield
        name = getattr(element, field_name) if field_name else element
        if by_id:
            topic = image.topics_by_id.get(name)
            if topic is None:
                continue  # the handler reports an unknown topic
            name = topic.name
        if name is None or (rule.when and not conditions.of_element(rule.when, admission, element)):
            continue
        if not admission.access.may_any(rule.alternatives, name):
            refused.append(element)
    if not refused:
        return
    yield from _refuse_elements(rule, array, elements, refused, admission)


def _refuse_elements(
    rule: AccessRule, array: str, elements: Sequence[object], refused: Sequence[object], admission: Admission
) -> Generator[None, None, None]:
    out = {id(element) for element in refused}
    if isinstance(refused[0], str):
        names = set(refused)
        admitted = [element for element in elements if element not in names]
    else:
        admitted = [element for element in elements if id(element) not in out]
    for element in refused:
        yield
        particular.refuse_element(rule, admission, element)
    admission.request = admission.request.replace(**{array: admitted})
    if admission.api.name == "AddPartitionsToTxn":
        particular.refuse_others(admission, array, rule.answer)
        admitted = []
    if not admitted:
        particular.nothing_left(admission)


# -- what is left out


def _note_omission(rule: AccessRule, admission: Admission) -> Generator[None, None, None]:
    if rule.when and not conditions.of_request(rule.when, admission):
        return
    if len(rule.alternatives) > 1 and admission.access.may_any(rule.alternatives[:1], None, quietly=True):
        return
    path = rule.field.split("[].")
    admission.finishes.append(lambda response: _omit(rule, admission, path, response))
    yield


def _omit(rule: AccessRule, admission: Admission, path: list[str], response: S) -> Generator[None, None, S]:
    array, *rest = path
    admitted = []
    for element in getattr(response, array) or ():
        yield
        if len(rest) > 1:
            admitted.append((yield from _omit(rule, admission, rest, element)))
        elif admission.access.may_any(rule.alternatives[-1:], getattr(element, rest[0]), quietly=True):
            admitted.append(element)
    return response.replace(**{array: admitted})
