"""What a bystander tells of its requests: latencies by phase, and what went wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.hostile.bystander import PERIOD_SECONDS

_ROOT: Final = Path(__file__).resolve().parents[2]
_END_SECONDS: Final = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One request of the bystander. Moments are those of `time.monotonic`, which the processes of a machine share."""

    kind: str
    due: float
    done: float
    trouble: tuple[str, ...]

    @property
    def latency_ms(self) -> float:
        return (self.done - self.due) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Of all requests that were due in one phase, and of those that would have been: while one waits for a second, a client
    with twenty requests in a second has twenty that wait, the last of them hardly at all."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    troubles: dict[str, int]
    """The most frequent first."""

    @classmethod
    def of(cls, answers: Sequence[Answered]) -> Self:
        values = sorted(
            latency_ms for answered in answers for latency_ms in _with_omitted(answered.latency_ms)
        )
        return cls(
            count=len(answers),
            p50_ms=_quantile(values, 0.5),
            p99_ms=_quantile(values, 0.99),
            max_ms=values[-1] if values else 0.0,
            troubles=dict(
                Counter(
                    trouble for answered_request in answers for trouble in answered_request.trouble
                ).most_common()
            ),
        )


def _with_omitted(latency_ms: float) -> Iterator[float]:
    """The latency itself, and those of the requests that were not sent meanwhile, though they were due."""
    period_ms = PERIOD_SECONDS * 1000
    yield latency_ms
    while (latency_ms := latency_ms - period_ms) > 0:
        yield latency_ms


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def by_phase(answers: Sequence[Answered], *, attacked: float, calm: float) -> dict[str, list[Answered]]:
    """Returns the answers before, during and after an attack.

    A request that waits when the attack begins is one of those during it: the attack may be what it waits for.
    """
    return {
        "before": [answered for answered in answers if answered.done < attacked],
        "during": [answered for answered in answers if answered.done >= attacked and answered.due < calm],
        "after": [answered for answered in answers if answered.done >= attacked and answered.due >= calm],
    }


class Bystander:
    """The process of `bystander.py`; a context manager."""

    def __init__(self, addresses: str, topic: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.bystander", addresses, topic],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: list[Answered] = []
        self._reader = threading.Thread(target=self._read, name="bystander's answers", daemon=True)
        self._reader.start()

    def answers_since(self, moment: float) -> list[Answered]:
        """Returns the answers to requests that were due at the moment or later."""
        return [answered for answered in self._answers.copy() if answered.due >= moment]

    def kinds_since(self, moment: float) -> set[str]:
        """The lanes that had an answer, to a request that was due after the moment."""
        return {answered.kind for answered in self._answers.copy() if answered.due >= moment}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        for line_fields in self._lines():
            self._answers.append(line_fields)

    def _lines(self) -> Iterator[Answered]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            line_fields = json.loads(line)
            yield Answered(
                kind=line_fields["kind"],
                due=line_fields["due"],
                done=line_fields["done"],
                trouble=tuple(line_fields["trouble"]),
            )
