"""The document of a pipeline, which states what is wanted of it: JSON, the value of a record of `__odradek_pipelines`.

The supervisor obeys documents and never writes them. People change them, through `PipelineStore.change`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Self

from odradek.model.errors import ConfigError, ErrorCode, KafkaError

_UNREADABLE: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    ConfigError,
)
"""The errors that decoding an unchecked document can raise."""
PIPELINES_TOPIC: Final = "__odradek_pipelines"
"""Key: the pipeline's name. Value: its document; none after `delete`."""
FORMAT: Final = 1
HISTORY_MAX: Final = 50
DELIVERIES: Final = ("exactly_once", "at_least_once")
_CANDIDATE: Final = "~v"
"""Marks the keys of candidates' statuses. No pipeline's name contains it."""
_NUMBERED: Final = re.compile(r"/v[0-9]+$")
"""The end of the path of a version's checkpoint."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_SECRET: Final = re.compile(r"(?i)secret|password|token|access[.]?key")
"""The default of `spark.redaction.regex`."""
HIDDEN: Final = "(hidden)"


class Desired(StrEnum):
    """The desired state of a pipeline, which a user asked for."""

    RUNNING = "running"
    PAUSED = "paused"
    """It reads nothing, and is quick to go on: its process stays, if it has one."""
    STOPPED = "stopped"


DESIRED_BY_VERB: Final = {
    "start": Desired.RUNNING,
    "stop": Desired.STOPPED,
    "pause": Desired.PAUSED,
    "resume": Desired.RUNNING,
}
"""The verbs by which users change the desired state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineVersion:
    """A program of a pipeline, and where its state is. A version never changes: an upgrade adds one."""

    number: int
    program: str
    """A file, absolute, on the supervisor's machine."""
    args: tuple[str, ...] = ()
    """The program's `sys.argv[1:]`."""
    checkpoint: str
    """A directory or URL. A relative one is below the supervisor's state directory."""
    made_ms: int = 0
    suffix: str = ""
    """The suffix of its outputs' names, and of a streams program's: a version that was rebuilt has its own."""
    way: str = "run"
    """The operation that made it: run, keep, carry, rebuild or reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A line of a pipeline's history."""

    at_ms: int
    by: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDocument:
    """The document of one pipeline: what is wanted of it."""

    name: str
    revision: int = 0
    """Counts the changes of this document."""
    desired: Desired = Desired.RUNNING
    versions: tuple[PipelineVersion, ...]
    """Oldest first. The last one runs."""
    candidate: PipelineVersion | None = None
    """A version that is being rebuilt: it runs next to the last one, until it replaces it."""
    swap_lag: int = 1_000
    """The lag of all inputs together, in records, at which a candidate takes over."""
    master: str | None = None
    """The Spark master; None: a light local session."""
    conf: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings of its Spark session, such as spark.executor.memory."""
    delivery: str = "exactly_once"
    """The delivery of programs that leave it open, which are programs of `odradek.streams`."""
    sleep_after_s: float | None = None
    """Its process ends after this time without input, and starts when offsets of its inputs move. None: it never sleeps."""
    history: tuple[Change, ...] = field(default=())

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"pipeline name {self.name!r}: 1 to 200 letters, digits, '.', '_' and '-', no sign first"
            )
        if not self.versions:
            raise ConfigError(f"pipeline {self.name} has no version")
        if self.delivery not in DELIVERIES:
            raise ConfigError(f"delivery {self.delivery!r}: expected one of {', '.join(DELIVERIES)}")
        if self.swap_lag < 0:
            raise ConfigError(f"pipeline {self.name}: a lag of {self.swap_lag} records is never reached")
        if self.sleep_after_s is not None and not self.sleep_after_s > 0:
            raise ConfigError(
                f"pipeline {self.name} is to sleep after {self.sleep_after_s:g} s: expected more than 0"
            )

    @property
    def current(self) -> PipelineVersion:
        return self.versions[-1]

    @property
    def next_number(self) -> int:
        """The number of the next version. The number of a candidate that was given up is not used again."""
        return 1 + max(version.number for version in (*self.versions, *_some(self.candidate)))

    @property
    def next_checkpoint(self) -> str:
        """The path of the next version's checkpoint, next to the current one's."""
        directory = _NUMBERED.sub("", self.current.checkpoint.rstrip("/"))
        return f"{directory}/v{self.next_number}"

    def of_candidate(self) -> Self | None:
        """Returns the candidate's document: the pipeline's own, but it does not sleep."""
        if self.candidate is None:
            return None
        return replace(self, versions=(self.candidate,), candidate=None, sleep_after_s=None)

    def swapped(self, at_ms: int, by: str) -> Self:
        """Returns the document with the candidate in place of the last version; itself when there is none."""
        if self.candidate is None:
            return self
        what = f"swap: version {self.candidate.number} in place of {self.current.number}"
        return self.changed(at_ms, by, what, versions=(*self.versions, self.candidate), candidate=None)

    @property
    def run_key(self) -> tuple[object, ...]:
        """A key that is equal for documents that the same process can serve."""
        return (self.current, self.master, self.conf, self.delivery)

    def changed(self, at_ms: int, by: str, what: str, **fields: Any) -> Self:
        """Returns the next revision. Of the history, the newest `HISTORY_MAX` lines stay."""
        history = (*self.history, Change(at_ms=at_ms, by=by, what=what))[-HISTORY_MAX:]
        return replace(self, revision=self.revision + 1, history=history, **fields)

    def refusal(self, verb: str) -> str | None:
        """Returns why a verb of `DESIRED_BY_VERB` does not apply now, in words after the name; None where it does."""
        if verb == "pause" and self.desired is Desired.STOPPED:
            return "is stopped"
        if verb == "resume" and self.desired is not Desired.PAUSED:
            return f"is {self.desired.value}, not paused: `start` starts it"
        return None

    @property
    def shown_conf(self) -> tuple[tuple[str, str], ...]:
        """The settings of its Spark session, without secrets. Spark hides the same in its own pages."""
        return tuple((key, HIDDEN if is_secret(key, value) else value) for key, value in self.conf)

    def to_bytes(self) -> bytes:
        return json.dumps(
            {"format": FORMAT, **asdict(self)}, separators=(",", ":"), ensure_ascii=False
        ).encode()

    @classmethod
    def from_bytes(cls, name: str, value: bytes) -> Self:
        """Parses a document. KafkaError INVALID_RECORD for other bytes."""
        try:
            content: Mapping[str, Any] = json.loads(value)
            if content["format"] != FORMAT:
                raise ValueError(
                    f"its format is {content['format']}, and this version of Odradek knows {FORMAT}"
                )
            if content["name"] != name:
                raise ValueError(f"it is the document of {content['name']!r}")
            return cls(
                name=name,
                revision=int(content["revision"]),  # digits: a number of our own JSON
                desired=Desired(content["desired"]),
                versions=tuple(map(_version, content["versions"])),
                candidate=None if content.get("candidate") is None else _version(content["candidate"]),
                swap_lag=int(content.get("swap_lag", 1_000)),  # digits: a number of our own JSON
                master=None if content["master"] is None else _text(content["master"]),
                conf=tuple((_text(key), _text(value)) for key, value in content.get("conf", ())),
                delivery=content["delivery"],
                sleep_after_s=content["sleep_after_s"],
                history=tuple(Change(**change) for change in content["history"]),
            )
        except _UNREADABLE as error:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"the document of pipeline {name!r} in {PIPELINES_TOPIC} is unreadable: {error}",
            ) from None


def _version(content: Mapping[str, Any]) -> PipelineVersion:
    version = PipelineVersion(**{**content, "args": tuple(map(_text, content["args"]))})
    for text in (version.program, version.checkpoint, version.suffix, version.way):
        _text(text)
    return version


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(f"expected a text without NUL, not {value!r}")
    return value


def _some(version: PipelineVersion | None) -> tuple[PipelineVersion, ...]:
    return () if version is None else (version,)


def is_secret(key: str, value: str) -> bool:
    """Tells whether a setting of Spark is secret."""
    return _SECRET.search(key) is not None or _SECRET.search(value) is not None


def runs_of(document: PipelineDocument) -> dict[str, PipelineDocument]:
    """Returns the documents to run, by the key of their status: the last version's document, and a candidate's."""
    runs = {document.name: document}
    candidate = document.of_candidate()
    if candidate is not None:
        runs[run_key(document.name, candidate.current.number)] = candidate
    return runs


def run_key(name: str, version: int) -> str:
    """Returns the key of the status of a version that is not the current one."""
    return f"{name}{_CANDIDATE}{version}"


def pipeline_of(key: str) -> str:
    """Returns the pipeline that a status belongs to."""
    return key.partition(_CANDIDATE)[0]


def is_candidate(key: str) -> bool:
    """Tells whether a status is of a version that is not the current one."""
    return _CANDIDATE in key
