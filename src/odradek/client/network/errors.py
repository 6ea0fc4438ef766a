"""The errors of clients beyond plain `KafkaError`s from a broker's answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.exception_text import text_of
from odradek.model.public import public


class BrokerUnreachableError(KafkaError):
    """No connection to a broker: the message names host, port and reason. Retriable."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class WrongPeerError(KafkaError):
    """Something listens there, but not the Kafka listener of the settings. Not retriable."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later: False."""
        return False


class LoginError(KafkaError):
    """A broker does not let this client in: a wrong user, password, token or mechanism. Not retriable."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class TimedOutError(KafkaError):
    """The caller's own time limit passed; `cause` is the last thing that went wrong meanwhile, if anything did."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        reason = f" (last problem: {explain(cause)})" if cause is not None else ""
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message + reason)
        self.cause: Final = cause


class BufferFullError(TimedOutError):
    """The error of a send that had no room in `buffer.memory` for `max.block.ms`, because earlier records could not be sent."""


class DeliveryError(KafkaError):
    """Records of the last `flush` or `close` that were not delivered and whose `Delivery` no one had looked at."""

    def __init__(self, record_count: int, first: Exception) -> None:
        noun = "record was" if record_count == 1 else "records were"
        super().__init__(_code_of(first), f"{record_count} {noun} not delivered; the first: {explain(first)}")
        self.record_count: Final = record_count
        self.first: Final = first


@public("odradek")
class PartialFailureError(KafkaError):
    """Some items of one admin call failed. `errors` has their errors, `results` has the results of the
    others."""

    def __init__(self, what: str, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> None:
        lines = "; ".join(_with_item(str(subject), explain(error)) for subject, error in errors.items())
        first = next(iter(errors.values()))
        super().__init__(
            first.code, f"{what} failed for {len(errors)} of {len(errors) + len(results)}: {lines}"
        )
        self.errors: Final[Mapping[Any, KafkaError]] = MappingProxyType(dict(errors))
        self.results: Final[Mapping[Any, Any]] = MappingProxyType(dict(results))


class ClientClosedError(OdradekError):
    """The client was used after `close`."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the {what} is closed")


class IllegalStateError(OdradekError):
    """The client cannot do this here or now: it lives on another event loop or in another process, or reads nothing yet."""


class WrongArgumentError(OdradekError, TypeError, ValueError):
    """An argument, or a part of one, is nothing that the method takes; the message names the part and what is allowed."""


class ConcurrentUseError(IllegalStateError):
    """Two threads, or two tasks, used one consumer at the same time. The second call is refused and changes nothing."""


class ClientBrokenError(OdradekError):
    """The client's own background work failed; its cause is chained. It cannot be used any more."""

    def __init__(self, what: str, cause: BaseException) -> None:
        super().__init__(f"the {what} has stopped working: {explain(cause)}")
        self.__cause__ = cause


def explain(error: BaseException) -> str:
    """Returns one clause for people, without the code's name where the message is enough."""
    if isinstance(error, KafkaError):
        return error.message if error.message != error.code.meaning else f"{error.code.name}, {error.message}"
    return text_of(error) or type(error).__name__


def _code_of(error: Exception) -> ErrorCode:
    return error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR


def _with_item(subject: str, reason: str) -> str:
    return reason if reason.startswith(subject) else f"{subject}: {reason}"
