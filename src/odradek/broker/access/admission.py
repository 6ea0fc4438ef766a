"""The state of one request at the gate: what its handler receives, and what is added to its response
afterwards."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from odradek.broker.requests.access import Access
from odradek.broker.requests.context import BrokerContext, RequestContext
from odradek.broker.requests.refused_answers import element_class, mirrored, whole_answer
from odradek.model.errors import ErrorCode
from odradek.protocol import Api, Message

Completion = Generator[None, None, Message]
"""The steps that complete an answer, which they return."""
Finish = Callable[[Any], Completion]


@dataclass(slots=True)
class Admission:
    """The state of one request at the gate."""

    broker: BrokerContext
    context: RequestContext
    access: Access
    api: Api
    request: Any
    answer: Message | None = None
    """The whole answer, when the handler is not called."""
    refused: dict[str, list[Any]] = field(default_factory=dict)
    """Answers to refused elements, by the array that they go to."""
    finishes: list[Finish] = field(default_factory=list)

    @property
    def version(self) -> int:
        return self.context.api_version

    def refuse(self, code: ErrorCode) -> None:
        """Refuses the whole request."""
        message = f"{self.context.principal} is not allowed to {self.api.name} this"
        self.answer = whole_answer(self.api, self.version, self.request, code, message)

    def refuse_element(
        self, response_array: str, element: object, code: ErrorCode, message: str | None = None
    ) -> None:
        cls = element_class(self.api.response, response_array)
        self.refused.setdefault(response_array, []).append(
            mirrored(self.api, self.version, cls, element, code, message)
        )

    def finishing(self, response: Message) -> Completion:
        for finish in self.finishes:
            response = yield from finish(response)
        for array, refused in self.refused.items():
            response = response.replace(**{array: [*(getattr(response, array) or ()), *refused]})
        return response
