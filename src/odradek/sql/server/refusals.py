"""Refusals of requests: ksqlDB's error codes and the JSON that its clients read.

Source: ksqlDB's HTTP API reference, "Errors". A code is the HTTP status, then two digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.values.errors import SqlError

BAD_REQUEST: Final = 40000
BAD_STATEMENT: Final = 40001
QUERY_ENDPOINT: Final = 40002
UNAUTHORIZED: Final = 40100
FORBIDDEN_KAFKA_ACCESS: Final = 40301
NOT_FOUND: Final = 40400
REQUEST_TIMEOUT: Final = 40800
ASSERT_FAILED: Final = 41700
TOO_MANY_REQUESTS: Final = 42900
SERVER_ERROR: Final = 50000

_DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class RestRefusal(OdradekError):
    """A statement or request that is refused, with ksqlDB's error code.

    `statement`: the text that is refused, where there is one; the answer is then a `statement_error`. `entities`: what the
    statements before it in the same request have answered.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        statement: str | None = None,
        entities: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        super().__init__(message)
        self.code: Final = code
        self.message: Final = message
        self.statement: Final = statement
        self.entities: Final = entities or []

    @property
    def status(self) -> int:
        """The HTTP status code."""
        return self.code // 100

    def as_json(self) -> dict[str, object]:
        if self.statement is None:
            return {"@type": "generic_error", "error_code": self.code, "message": self.message}
        return {
            "@type": "statement_error",
            "error_code": self.code,
            "message": self.message,
            "statementText": self.statement,
            "entities": self.entities,
        }


def refusal_of(
    error: Exception, statement: str | None = None, entities: Sequence[Mapping[str, object]] | None = None
) -> RestRefusal:
    """Returns the refusal that a client gets for an error. `statement`: the whole text that the error's position is in."""
    if isinstance(error, RestRefusal):
        if entities is None and (statement is None or error.statement is not None):
            return error
        return RestRefusal(
            error.code, error.message, statement=error.statement or statement, entities=entities
        )
    if isinstance(error, SqlError):
        text = error.text(statement) if statement is not None else str(error)
        return RestRefusal(BAD_STATEMENT, text, statement=statement or "", entities=entities)
    if isinstance(error, KafkaError) and error.code in _DENIED:
        return RestRefusal(FORBIDDEN_KAFKA_ACCESS, str(error), statement=statement, entities=entities)
    if isinstance(error, OdradekError):
        code = SERVER_ERROR if isinstance(error, KafkaError) else BAD_STATEMENT
        return RestRefusal(code, str(error), statement=statement, entities=entities)
    return RestRefusal(
        SERVER_ERROR, f"unexpected {type(error).__name__}: {error}", statement=statement, entities=entities
    )
