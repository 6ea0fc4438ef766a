"""Errors between bytes and messages. Each shows who erred: the sender, or our own caller."""

from __future__ import annotations

from odradek.model.errors import ErrorCode, KafkaError, OdradekError


class Fault(Exception):
    """Raised inside compiled codecs; `compiled.py` makes one of the errors below of it, with path and position."""


class MalformedMessage(KafkaError):
    """The bytes are not the message they claim to be: `path` names the field, `position` the byte."""

    def __init__(self, problem: str, *, path: str = "", position: int = 0) -> None:
        self.problem = problem
        self.path = path
        self.position = position
        where = f"{path} " if path else ""
        super().__init__(ErrorCode.INVALID_REQUEST, f"{where}at byte {position}: {problem}")


class TooManyElements(KafkaError):
    """The arrays of a message hold more elements than were allowed. The remaining bytes were not checked."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, "a message has more elements than are allowed")


class UnencodableMessage(OdradekError, ValueError):
    """The caller put a value into a message that its field cannot carry; `path` names the field."""

    def __init__(self, problem: str, *, path: str = "") -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{path}: {problem}" if path else problem)


class FieldNotInVersion(KafkaError):
    """A field holds a value that must not be dropped in silence, and the message's version lacks the field."""

    def __init__(self, path: str, version: int) -> None:
        self.path = path
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, f"{path} cannot be sent in version {version}")


class UnknownVersion(KafkaError):
    """The message has no such version, or no such API exists."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, f"{name} has no version {version}")


class InvalidFrame(KafkaError):
    """The stream cannot be cut into frames any more: close the connection."""

    def __init__(self, problem: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, problem)


class FrameTooLarge(InvalidFrame):
    """A frame announces more bytes than this connection accepts; nothing was allocated for it."""

    def __init__(self, announced_bytes: int, max_bytes: int) -> None:
        self.announced_bytes = announced_bytes
        self.max_bytes = max_bytes
        super().__init__(
            f"a frame of {announced_bytes} bytes was announced, at most {max_bytes} are accepted"
        )
