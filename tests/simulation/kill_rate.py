"""The bank of planted bugs, hunted in two processes: how many are found, after how many seeds, and by which faults.

Which seed found each is written to `caught_by.json`. Tests try that seed first: they ask whether a bug is caught, not how soon.
A seed that finds it no longer, because the code under test takes other steps, costs them a longer hunt.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
from tests.simulation.bank import BANK, Mutant
from tests.simulation.cluster.plays import PROFILES, profile_of
from tests.simulation.mutant import ASIDE
from tests.simulation.sweep import hunt

_PROCESSES: Final = 2
_SEEDS_MAX: Final = 400
_SHOWN: Final = 100
CAUGHT_BY_FILE: Final = Path(__file__).with_name("caught_by.json")
Progress = Callable[[str, int, int, int], None]
"""The mutant that was hunted, the seeds that it took, how many are done, of how many."""


class Outcome(NamedTuple):
    """Of the hunt for one planted bug."""

    name: str
    scenario: str
    seeds_tried: int
    """From seed 0 on, up to and with the one that found it."""
    failure: str | None
    """How it broke a promise; None when no seed found it."""
    cpu_s: float

    @property
    def profile(self) -> str:
        """Of the seed that found it, where seeds have profiles."""
        was_found = self.failure is not None and self.scenario == "cluster"
        return profile_of(self.seeds_tried - 1) if was_found else ""


def caught_by() -> dict[str, int]:
    """The seed that found each planted bug when all were hunted last."""
    known: dict[str, int] = json.loads(CAUGHT_BY_FILE.read_text())
    return known


def note_seeds(outcomes: Iterable[Outcome]) -> None:
    """Write down which seeds found what; of bugs that were not hunted what is known stays."""
    seeds_to_kill = {
        outcome.name: outcome.seeds_tried - 1 for outcome in outcomes if outcome.failure is not None
    }
    names = {mutant.name for mutant in BANK}
    known = {name: seed for name, seed in caught_by().items() if name in names}
    CAUGHT_BY_FILE.write_text(json.dumps(known | seeds_to_kill, indent=1, sort_keys=True) + "\n")


def hunted(name: str) -> Outcome:
    """Hunt the mutant of this name until a seed finds it."""
    started_s = time.process_time()
    mutant = next(named for named in BANK if named.name == name)
    run_result = hunt(mutant, range(_SEEDS_MAX))
    failure = run_result.found.failure if run_result.found is not None else None
    return Outcome(name, mutant.scenario, run_result.seeds_tried, failure, time.process_time() - started_s)


def measure(scenario: str, progress: Progress) -> int:
    """Hunt all of a scenario, or of `all`, and print the outcome; 0 when every one was found."""
    started_s = time.perf_counter()
    bank = [mutant for mutant in BANK if scenario in ("all", mutant.scenario)]
    outcomes = []
    with multiprocessing.get_context("spawn").Pool(_PROCESSES) as pool:
        for outcome in pool.imap_unordered(hunted, [mutant.name for mutant in bank]):
            outcomes.append(outcome)
            progress(outcome.name, outcome.seeds_tried, len(outcomes), len(bank))
    note_seeds(outcomes)
    _report(bank, {named.name: named for named in outcomes}, time.perf_counter() - started_s)
    return 0 if all(outcome.failure is not None for outcome in outcomes) else 1


def measure_one(name: str) -> int:
    """Hunt the planted bug of this name, and print the outcome; 0 when it was found."""
    if all(mutant.name != name for mutant in BANK):
        reasons = [f"it is not hunted: {reason}" for mutant, reason in ASIDE if mutant.name == name]
        reason = reasons[0] if reasons else "is its file imported in tests/simulation/bank.py?"
        raise click.ClickException(f"the bank has no planted bug {name}: {reason}")
    outcome = hunted(name)
    note_seeds([outcome])
    seeds = f"{name}, {outcome.scenario}, {outcome.seeds_tried} seeds, {outcome.cpu_s:.0f} s of CPU: "
    click.echo(seeds + (outcome.failure or "NOT CAUGHT"))
    return 0 if outcome.failure is not None else 1


def _report(bank: Sequence[Mutant], outcomes: dict[str, Outcome], seconds: float) -> None:
    click.echo(f"{'planted bug':<42}{'seeds':>6}  {'profile':<9}caught as")
    for mutant in bank:
        outcome = outcomes[mutant.name]
        how = "NOT CAUGHT" if outcome.failure is None else outcome.failure.splitlines()[0][:_SHOWN]
        click.echo(f"{outcome.name:<42}{outcome.seeds_tried:>6}  {outcome.profile:<9}{how}")
    for scenario in dict.fromkeys(mutant.scenario for mutant in bank):
        _summary(scenario, [outcome for outcome in outcomes.values() if outcome.scenario == scenario])
    for mutant, why in ASIDE:
        click.echo(f"not hunted: {mutant.name}: {why}")
    cpu_s = sum(outcome.cpu_s for outcome in outcomes.values())
    click.echo(f"{cpu_s:.0f} s of CPU in {_PROCESSES} processes, {seconds:.0f} s by the clock")


def _summary(scenario: str, outcomes: Sequence[Outcome]) -> None:
    caught = [outcome for outcome in outcomes if outcome.failure is not None]
    tried = [outcome.seeds_tried for outcome in caught]
    share = f"{len(caught)} of {len(outcomes)} caught ({100 * len(caught) / len(outcomes):.0f} %)"
    if not caught:
        click.echo(f"{scenario}: {share}")
        return
    click.echo(
        f"{scenario}: {share}, the first seed that finds one is by the median number {statistics.median(tried):g}, "
        f"at most {max(tried)}"
    )
    if scenario == "cluster":
        _by_profile(outcomes)


def _by_profile(outcomes: Sequence[Outcome]) -> None:
    """A seed draws its profile, so these are shares of one and the same hunt, in the order in which seeds come."""
    counter = Counter(outcome.profile for outcome in outcomes if outcome.failure is not None)
    ran = Counter(profile_of(seed) for outcome in outcomes for seed in range(outcome.seeds_tried))
    for profile in PROFILES:
        share = 100 * counter[profile] / max(1, ran[profile])
        click.echo(f"    {profile:<9}{counter[profile]:>3} found by {ran[profile]:>4} runs ({share:.0f} %)")
