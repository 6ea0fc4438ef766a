"""Many trials over every kind of file, and their outcomes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.faults.corruption.damage import IDENTITY, KINDS, REGISTRY
from tests.faults.corruption.dataset import Dataset, make
from tests.faults.corruption.trial import Outcome, try_running, try_stopped

_ALONE: Final = (IDENTITY, REGISTRY)
"""A broker may refuse to start because of these: nothing else is damaged with them."""
_WHILE_RUNNING: Final = (".log", ".index", ".timeindex")
"""What is there was there before the broker began to run: what it wrote itself, or checked, it does not check again."""
_EXAMPLES: Final = 4


@dataclass(slots=True)
class Result:
    seed: int
    damages: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    bad: list[Outcome] = field(default_factory=list)
    trials: int = 0

    @property
    def is_clean(self) -> bool:
        return not self.bad

    def note(self, outcome: Outcome) -> None:
        self.trials += 1
        self.damages.update(damage.kind for damage in outcome.damages)
        self.refusals.update(damage.kind for damage in outcome.damages if outcome.refusal)
        self.acknowledged += outcome.finding.acknowledged
        if not outcome.finding.is_clean:
            self.bad.append(outcome)

    def text(self) -> str:
        lines = [
            f"seed {self.seed}: {self.trials} trials, {self.damages.total()} damaged files, "
            f"{self.acknowledged:,} acknowledgements checked"
        ]
        lines += [
            f"  {count:4} x {kind}" + (f" ({self.refusals[kind]} refused)" if self.refusals[kind] else "")
            for kind, count in sorted(self.damages.items())
        ]
        lines.append(f"trials after which something was wrong: {len(self.bad)}")
        lines += [line for outcome in self.bad for line in _lines_of(outcome)]
        return "\n".join(lines)


def _lines_of(outcome: Outcome) -> list[str]:
    return [
        f"  {outcome.text()}",
        *(
            f"    {kind} {len(results)}: {', '.join(results[:_EXAMPLES])}"
            for kind, results in outcome.finding.everything().items()
        ),
    ]


def run(
    trials: int,
    seed: int,
    directory: Path,
    *,
    kinds: Sequence[str] | None = None,
    per_trial: int = 2,
    seconds: float = 4.0,
    tell: Callable[[str], None] = lambda line: None,
) -> Result:
    """Each trial damages `per_trial` files; what may keep a broker from starting is damaged alone."""
    rng = random.Random(seed)
    dataset = make(directory, seconds=seconds)
    run_result = Result(seed)
    deck: list[str] = []
    for _ in range(trials):
        drawn: list[str] = []
        while len(drawn) < per_trial and not (drawn and drawn[-1] in _ALONE):
            if not deck:
                deck = rng.sample(list(kinds or KINDS), len(kinds or KINDS))
            if drawn and deck[-1] in _ALONE:
                break
            drawn.append(deck.pop())
        outcome = _try(dataset, drawn, directory, rng)
        run_result.note(outcome)
        verdict = "clean" if outcome.finding.is_clean else f"BAD {outcome.finding.everything()}"[:2000]
        tell(f"{run_result.trials}: {outcome.text()}: {verdict}")
    return run_result


def _try(dataset: Dataset, kinds: list[str], directory: Path, rng: random.Random) -> Outcome:
    if all(kind in _WHILE_RUNNING for kind in kinds) and rng.random() < 0.5:
        return try_running(dataset, kinds, directory, rng)
    return try_stopped(dataset, kinds, directory, rng, killed=rng.random() < 0.5)
