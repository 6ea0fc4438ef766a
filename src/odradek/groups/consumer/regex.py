"""Matches topics with regular expressions, by RE2: in time linear in the name, which a client cannot make exponential.

Linear is not short: an expression of 30,000 instructions costs 30 ms for a name of 249 letters. So what may take long happens
on another thread, and three limits hold: the characters of an expression, RE2's memory for it, and the CPU time of its matches.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.model.lazy import lazy
from odradek.runtime.ports import Offload

if TYPE_CHECKING:
    import re2
else:
    re2 = lazy("re2")

PATTERN_CHARACTERS_MAX: Final = 32_767
"""The longest pattern: the most characters of a string in Kafka's older format."""
MEMORY_BYTES_MAX: Final = 1 << 20
"""RE2's memory for one expression. Its program may have some 40,000 instructions."""
NAME_WORK_MAX: Final = 20_000_000
"""The most instructions times characters of one name: a second at the very worst. Only transactional ids are ever so long."""
CPU_NS_MAX: Final = 1_000_000_000
"""The CPU time that the matches of one call may take, in addition to `NAME_NS` for each name."""
NAME_NS: Final = 50_000
INLINE_CHARACTERS_MAX: Final = 256
"""A longer pattern is compiled on another thread: RE2 simplifies optional parts in quadratic time."""
INLINE_WORK_MAX: Final = 500_000
"""Instructions times characters that the event loop's thread may match: twenty milliseconds at the very worst."""
_NAME_WORK: Final = 100
"""The overhead of a call, in the same unit."""
_OUTCOMES_WEIGHT_MAX: Final = 2_000_000
"""The most that is remembered, in entries of about fifty bytes."""
_OUTCOME_WEIGHT: Final = 1_000
_FORGET_LEAST: Final = 1_000


def matching(pattern: str, names: Iterable[str], *, cpu_ns_max: int = CPU_NS_MAX) -> list[str]:
    """Returns the names that match as a whole, in order; blocks. Raises INVALID_REGULAR_EXPRESSION, also without names."""
    compiled = _compiled(pattern)
    size = compiled.programsize
    begin_ns = time.thread_time_ns()  # CPU time of this thread: a busy machine changes nothing
    matched: list[str] = []
    for count, name in enumerate(names):
        if (
            time.thread_time_ns() - begin_ns > cpu_ns_max + count * NAME_NS
            or size * len(name) > NAME_WORK_MAX
        ):
            _refuse(pattern, "takes too much work: simplify it")
        if compiled.fullmatch(name):
            matched.append(name)
    return matched


def _compiled(pattern: str) -> re2._Regexp:
    """RE2 keeps the last 128 of them itself."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        _refuse(pattern, f"has {len(pattern)} characters: {PATTERN_CHARACTERS_MAX} are the most")
    try:
        options = re2.Options()
    except ImportError:
        _refuse(pattern, "cannot be used: this broker lacks RE2 (pip install google-re2)")
    options.max_mem = MEMORY_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        _refuse(pattern, f"is invalid: {text}")
    except UnicodeEncodeError:
        _refuse(pattern, "is invalid: it has half a surrogate pair")


def _refuse(pattern: str, reason: str) -> NoReturn:
    shown = pattern if len(pattern) <= 200 else f"{pattern[:200]}…"
    raise KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"the regular expression {shown!r} {reason}"
    ) from None


class MatchingRequired(Exception):
    """A decision needs matches that would hold up the event loop: `TopicPatterns.learn` them, then repeat it."""

    def __init__(self, pattern: str, names: Collection[str]) -> None:
        super().__init__(pattern)
        self.pattern: Final = pattern
        self.names: Final = names


class RegexWorker:
    """Matches on a thread of the offload port, one expression at a time: a hostile client must not occupy all threads."""

    def __init__(self) -> None:
        self._free = asyncio.Lock()

    async def matching(self, offload: Offload, pattern: str, names: Collection[str]) -> list[str]:
        """Returns the names that match a pattern, as `matching` does, on the worker's thread."""
        await self._free.acquire()
        work = asyncio.ensure_future(offload.run(matching, pattern, names))
        work.add_done_callback(
            lambda _: self._free.release()
        )  # a caller that is cancelled leaves the thread busy
        return await asyncio.shield(work)


@dataclass(slots=True)
class _Outcome:
    """What is known about one expression: its error, or the names that were compared and those that matched."""

    error: ErrorContent | None = None
    compared: set[str] = field(default_factory=set)
    matched: set[str] = field(default_factory=set)
    weight: int = 0


class TopicPatterns:
    """The outcomes of expressions, kept because groups ask for the same ones again and again: the last used, up to a weight."""

    def __init__(self) -> None:
        self._outcomes: OrderedDict[str, _Outcome] = OrderedDict()
        self._weight = 0
        self._worker = RegexWorker()

    def __len__(self) -> int:
        return len(self._outcomes)

    def matching(self, pattern: str, names: Collection[str]) -> frozenset[str]:
        """Returns the names that match. Raises INVALID_REGULAR_EXPRESSION, or MatchingRequired if that would take long."""
        known = self._outcomes.get(pattern)
        outcome = known or _Outcome()
        if outcome.error is None:
            if len(outcome.compared) > 2 * len(names) + _FORGET_LEAST:  # most of them were deleted
                outcome.compared.intersection_update(names)
                outcome.matched.intersection_update(names)
            unknown = [name for name in names if name not in outcome.compared]
            if unknown or known is None:
                self._compare(pattern, outcome, unknown)
        self._remember(pattern, outcome)
        if outcome.error is not None:
            raise outcome.error.error()
        return frozenset(name for name in names if name in outcome.matched)

    async def learn(self, offload: Offload, required: MatchingRequired) -> None:
        """Matches on another thread what a decision lacked; an error is for the decision that is repeated."""
        outcome = _Outcome()
        try:
            matched = await self._worker.matching(offload, required.pattern, required.names)
        except KafkaError as error:
            outcome.error = ErrorContent.of(error)
        else:
            outcome = self._outcomes.get(required.pattern, outcome)
            outcome.compared.update(required.names)
            outcome.matched.update(matched)
        self._remember(required.pattern, outcome)

    def _compare(self, pattern: str, outcome: _Outcome, names: Collection[str]) -> None:
        try:
            if not _is_quick(pattern, names):
                raise MatchingRequired(pattern, names)
            outcome.matched.update(matching(pattern, names))
        except KafkaError as error:
            outcome.error = ErrorContent.of(error)
        outcome.compared.update(names)

    def _remember(self, pattern: str, outcome: _Outcome) -> None:
        before = self._outcomes.pop(pattern, None)
        self._weight -= 0 if before is None else before.weight
        outcome.weight = _OUTCOME_WEIGHT + len(pattern) // 50 + len(outcome.compared)
        self._outcomes[pattern] = outcome
        self._weight += outcome.weight
        while self._weight > _OUTCOMES_WEIGHT_MAX and len(self._outcomes) > 1:
            _, lost = self._outcomes.popitem(last=False)
            self._weight -= lost.weight


def _is_quick(pattern: str, names: Iterable[str]) -> bool:
    """Returns whether the event loop may match these itself. Raises INVALID_REGULAR_EXPRESSION."""
    if len(pattern) > INLINE_CHARACTERS_MAX:
        return False
    size = _compiled(pattern).programsize
    return bool(sum(size * len(name) + _NAME_WORK for name in names) <= INLINE_WORK_MAX)
