"""Matches topics with regular expressions: RE2's syntax, in time that a client cannot make long.

Python's own `re` steps back and tries again, which takes for ever on an expression made for that; nothing could stop it,
and the broker would stand still. Here a set of positions in the program walks over the name once, as in RE2. The sets that
occur are remembered as states, so that a name costs one look-up per character. New states cost work, and all the work that
an expression may ever ask for is bounded: beyond `WORK_MAX` it is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from odradek.groups.consumer.regex_classes import WORD_CHARACTERS, CharacterClass
from odradek.groups.consumer.regex_syntax import AnchorPlace, Op, Program, parse
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError

WORK_MAX: Final = 200_000
"""Instructions that an expression may visit in its life, and what its classes of characters cost; known states and characters
are not counted."""
_VERDICTS_MAX: Final = 20_000
_WEIGHT_MAX: Final = 2_000_000
_WEIGHT_LEAST: Final = 1_000
_END: Final = ""


class _State:
    """Positions in the program between two characters, and where each next character leads."""

    __slots__ = ("after_word", "at_begin", "next", "positions", "verdict")

    def __init__(self, positions: frozenset[int], *, at_begin: bool, after_word: bool) -> None:
        self.positions = positions
        self.at_begin = at_begin
        self.after_word = after_word
        self.next: dict[str, _State] = {}
        self.verdict: bool | None = None


class TopicPattern:
    """A compiled expression. Raises INVALID_REGULAR_EXPRESSION when it is made, or when it asks for too much work."""

    def __init__(self, pattern: str) -> None:
        self.pattern: Final = pattern
        self._program: Final[Program] = parse(pattern)
        self.work_left = WORK_MAX
        self._begin = _State(frozenset([0]), at_begin=True, after_word=False)
        self._states: dict[tuple[frozenset[int], bool], _State] = {}
        self._verdicts: dict[str, bool] = {}

    @property
    def weight(self) -> int:
        """How much it remembers, in entries of some fifty bytes: program, states, names."""
        return len(self._program) + WORK_MAX - self.work_left + len(self._verdicts)

    def matches(self, name: str) -> bool:
        """Returns whether the whole name matches."""
        verdict = self._verdicts.get(name)
        if verdict is None:
            if len(self._verdicts) >= _VERDICTS_MAX:
                self._verdicts.clear()
            verdict = self._verdicts[name] = self._run(name)
        return verdict

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if self.matches(name))

    def _run(self, name: str) -> bool:
        state = self._begin
        for character in name:
            following = state.next.get(character)
            if following is None:
                following = state.next[character] = self._step(state, character)
            if not following.positions:
                return False
            state = following
        if state.verdict is None:
            state.verdict = len(self._program) in self._reached(state, _END)
        return state.verdict

    def _step(self, state: _State, character: str) -> _State:
        program, length = self._program, len(self._program)
        positions = frozenset(
            position + 1
            for position in self._reached(state, character)
            if position < length
            and (accepted := program[position].accepted) is not None
            and self._is_accepted(accepted, character)
        )
        after_word = character in WORD_CHARACTERS
        known = self._states.get((positions, after_word))
        if known is None:
            known = _State(positions, at_begin=False, after_word=after_word)
            self._states[positions, after_word] = known
        return known

    def _is_accepted(self, accepted: CharacterClass, character: str) -> bool:
        verdict = accepted.known.get(character)
        if verdict is None:
            self._spend(accepted.cost)
            verdict = accepted.learn(character)
        return verdict

    def _reached(self, state: _State, following: str) -> set[int]:
        """Returns all positions that the state's lead to without a character, `following` being the next one ("" at the
        end)."""
        program = self._program
        length = len(program)
        reached: set[int] = set()
        waiting = list(state.positions)
        while waiting:
            position = waiting.pop()
            if position in reached:
                continue
            reached.add(position)
            if position == length:
                continue
            op, _, first, second, place = program[position]
            if op is Op.FORK:
                waiting.append(position + first)
                waiting.append(position + second)
            elif op is Op.JUMP:
                waiting.append(position + first)
            elif op is Op.CHECK and _holds(place, state, following):
                waiting.append(position + 1)
        self._spend(len(reached))
        return reached

    def _spend(self, work: int) -> None:
        self.work_left -= work
        if self.work_left < 0:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"the regular expression {self.pattern[:200]!r} takes too much work: simplify it",
            )


def _holds(place: AnchorPlace, state: _State, following: str) -> bool:
    if place is AnchorPlace.BEGIN:
        return state.at_begin
    if place is AnchorPlace.END:
        return following == _END
    boundary = state.after_word != (following in WORD_CHARACTERS and following != _END)
    return boundary == (place is AnchorPlace.WORD_BOUNDARY)


class TopicPatterns:
    """Compiled expressions, kept because groups ask for the same ones again and again: those used last, up to a weight."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[TopicPattern | ErrorContent, int]] = OrderedDict()
        """The outcome of each, and what it weighed when it was used last."""
        self._weight = 0

    def __len__(self) -> int:
        return len(self._known)

    def matching(self, pattern: str, names: Iterable[str]) -> frozenset[str]:
        """Raises INVALID_REGULAR_EXPRESSION at once for an expression that was refused before."""
        known, _ = self._known.get(pattern, (None, 0))
        try:
            if isinstance(known, ErrorContent):
                raise known.error()
            if known is None:
                known = TopicPattern(pattern)
            return known.matching(names)
        except KafkaError as error:
            known = ErrorContent.of(error)
            raise
        finally:
            assert known is not None
            self._remember(pattern, known)

    def _remember(self, pattern: str, known: TopicPattern | ErrorContent) -> None:
        weight = _WEIGHT_LEAST if isinstance(known, ErrorContent) else _WEIGHT_LEAST + known.weight
        _, before = self._known.pop(pattern, (None, 0))
        self._known[pattern] = (known, weight)
        self._weight += weight - before
        while self._weight > _WEIGHT_MAX and len(self._known) > 1:
            _, (_, lost) = self._known.popitem(last=False)
            self._weight -= lost
