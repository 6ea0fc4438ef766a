"""`python -m tests.simulation`: seeds by the hundred, one seed again, every crash point of a seed,
planted bugs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
from tests.simulation.cluster.faults import ClusterFaults
from tests.simulation.fault_plan import FaultPlan, PlannedFault
from tests.simulation.kill_rate import measure, measure_one
from tests.simulation.sweep import (
    SCENARIOS,
    FirstLife,
    Plan,
    Run,
    explain_divergence,
    plans_of,
    run_once,
    shrink,
)

_HASH_SEED = "PYTHONHASHSEED"
_FAILURES_SHOWN = 20
_COMPARED = 10
_Planned = tuple[str, int, Plan]


@click.command()
@click.option(
    "--seeds", "seed_count", type=int, default=100, show_default=True, help="How many seeds to run."
)
@click.option("--first", type=int, default=0, show_default=True, help="The first of them.")
@click.option("--scenario", type=click.Choice([*SCENARIOS, "all"]), default="all", show_default=True)
@click.option("--seed", type=int, help="Run this seed alone.")
@click.option(
    "--faults",
    help="With --seed: its plan of faults (kill@79,power@12 or kill:leader@1+0.5); default: what it draws.",
)
@click.option(
    "--trace", type=click.Path(dir_okay=False, path_type=Path), help="With --seed: write its events here."
)
@click.option("--every-point", is_flag=True, help="With --seed: crash at every I/O point of its first life.")
@click.option("--mutants", is_flag=True, help="Plant every known bug in turn and count the seeds to find it.")
@click.option("--mutant", help="Plant the known bug of this name and count the seeds to find it.")
@click.option(
    "--once", is_flag=True, help="Run each seed once, half of them in a second process; every tenth in both."
)
@click.option(
    "--smaller",
    is_flag=True,
    help="With --seed and a scenario of a cluster: leave out faults while it fails.",
)
@click.option(
    "--part",
    type=click.Choice(["all", "odd"]),
    hidden=True,
    help="Print one line a run: the echo of another process.",
)
def main(
    seed_count: int,
    first: int,
    scenario: str,
    seed: int | None,
    faults: str | None,
    trace: Path | None,
    every_point: bool,
    mutants: bool,
    mutant: str | None,
    once: bool,
    smaller: bool,
    part: str | None,
) -> None:
    """Run the storage and the broker on simulated time, network and disk, and check what they promised."""
    names = list(SCENARIOS) if scenario == "all" else [scenario]
    if mutant is not None:
        sys.exit(measure_one(mutant))
    if mutants:
        sys.exit(_hunt_all(scenario))
    if every_point:
        sys.exit(max(_every_point(name, seed or 0) for name in names))
    if seed is not None:
        sys.exit(max(_one(name, seed, _plan(name, seed, faults, smaller), trace) for name in names))
    plans = [
        (name, number, plans_of(name).draw(number))
        for name in names
        for number in range(first, first + seed_count)
    ]
    if part is not None:
        for name, seed_of_plan, plan in _half(plans, 1) if part == "odd" else plans:
            click.echo(json.dumps(_report_of(run_once(name, seed_of_plan, plan)[0])))
        return
    arguments = ["--seeds", str(seed_count), "--first", str(first), "--scenario", scenario]
    sys.exit(_sweep(names, plans, [*arguments, "--part", "odd" if once else "all"], once=once))


def _plan(scenario: str, seed: int, faults: str | None, smaller: bool) -> Plan:
    kind = plans_of(scenario)
    plan: Plan = kind.parse(faults) if faults else kind.draw(seed)
    return shrink(scenario, seed, plan) if smaller and isinstance(plan, ClusterFaults) else plan


def _half(plans: Sequence[_Planned], parity: int) -> list[_Planned]:
    """Of every two the one, and of every twenty one that both processes run."""
    return [seed for number, seed in enumerate(plans) if number % 2 == parity or number % _COMPARED == 0]


def _report_of(run: Run) -> dict[str, Any]:
    return {
        "digest": run.digest,
        "event_count": run.event_count,
        "virtual_s": run.virtual_s,
        "life_count": run.life_count,
        "failure": run.failure,
    }


def _one(scenario: str, seed: int, plan: Plan, trace_path: Path | None) -> int:
    run, trace = run_once(scenario, seed, plan, keep_trace=True)
    again, _ = run_once(scenario, seed, plan, keep_trace=True)
    lines = trace.lines or []
    if trace_path is not None:
        trace_path.write_text("".join(lines))
    click.echo(
        f"{scenario} seed {seed}  faults {plan}  {run.event_count} events  {run.virtual_s:.3f} virtual s  {run.digest}"
    )
    if run.digest != again.digest:
        click.echo(
            f"the second run was another one: {again.digest}\n{explain_divergence(scenario, seed, plan)}"
        )
        return 1
    if run.failure is not None:
        click.echo(f"{''.join(lines[-30:])}{run.failure}")
        return 1
    return 0


def _sweep(names: Sequence[str], plans: Sequence[_Planned], echo: Sequence[str], *, once: bool) -> int:
    """Each run here and, with another hash seed, in a second process; what both run must have one digest."""
    environment = {**os.environ, _HASH_SEED: "1" if os.environ.get(_HASH_SEED) != "1" else "2"}
    command = [sys.executable, "-m", "tests.simulation", *echo]
    mine, theirs = (_half(plans, 0), _half(plans, 1)) if once else (plans, plans)
    started = time.perf_counter()
    failures: list[str] = []
    runs: dict[tuple[str, int], Run] = {}

    def ended(run: Run) -> None:
        known = runs.setdefault((run.scenario, run.seed), run)
        if known.digest != run.digest:
            failures.append(f"{run.command}\n    two runs with different hash seeds differ")
        elif known is run and run.failure is not None:
            failures.append(f"{run.command}\n    {run.failure}")
        _progress(run.scenario, run.seed, len(runs), len(plans), started, len(failures))

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as twin:
        try:
            lines = _lines(twin)
            for own, other in zip_longest(mine, theirs):
                if own is not None:
                    ended(run_once(*own)[0])
                if other is not None and (line := next(lines, None)) is not None:
                    name, seed, plan = other
                    ended(Run(scenario=name, seed=seed, plan=plan, **json.loads(line)))
        finally:
            twin.terminate()
    _end_progress()
    _table(names, list(runs.values()), time.perf_counter() - started, once=once)
    if len(runs) < len(plans):
        failures.append(f"the second process ended early: {len(runs)} of {len(plans)} runs")
    return _report(failures)


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.strip()


def _table(names: Iterable[str], runs: Sequence[Run], seconds: float, *, once: bool) -> None:
    click.echo(f"{'scenario':<16}{'seeds':>7}{'lives':>8}{'events':>12}{'virtual h':>11}{'failed':>8}")
    for name in names:
        own = [run for run in runs if run.scenario == name]
        click.echo(
            f"{name:<16}{len(own):>7}{sum(run.life_count for run in own):>8}"
            f"{sum(run.event_count for run in own):>12,}{sum(run.virtual_s for run in own) / 3600:>11.2f}"
            f"{sum(run.failure is not None for run in own):>8}"
        )
    often = "once, every tenth twice" if once else "twice"
    click.echo(f"each seed ran {often}, with different hash seeds, in {seconds:.1f} s")


def _every_point(scenario: str, seed: int) -> int:
    """Crash at each point by kill and by power loss, and once more at some point of the recovery."""
    count = len(FirstLife.of(scenario, seed).points)
    started = time.perf_counter()
    failures = []
    plans = [
        FaultPlan(((PlannedFault(kind, point),), (PlannedFault(second, 1 + point % 60),)))
        for point in range(1, count + 1)
        for kind in ("kill", "power")
        for second in ("kill", "power")
    ]
    for number, plan in enumerate(plans, 1):
        run, _ = run_once(scenario, seed, plan)
        if run.failure is not None:
            failures.append(f"{run.command}\n    {run.failure}")
        _progress(scenario, seed, number, len(plans), started, len(failures))
    _end_progress()
    click.echo(f"{scenario} seed {seed}: {count} I/O points, {len(plans)} runs, {len(failures)} failed")
    return _report(failures)


def _report(failures: Sequence[str]) -> int:
    for failure in failures[:_FAILURES_SHOWN]:
        click.echo(f"FAILED  {failure}")
    if len(failures) > _FAILURES_SHOWN:
        click.echo(f"... and {len(failures) - _FAILURES_SHOWN} more")
    return 1 if failures else 0


def _hunt_all(scenario: str) -> int:
    """The kill rate of the checkers."""
    started = time.perf_counter()
    try:
        return measure(
            scenario, lambda name, seeds, done, total: _progress(name, seeds, done, total, started, 0)
        )
    finally:
        _end_progress()


def _progress(what: str, seed: int, done: int, total: int, started: float, failed: int) -> None:
    if sys.stderr.isatty():
        seconds = time.perf_counter() - started
        click.echo(
            f"\r\033[K{what} seed {seed}  {done}/{total}  {seconds:.0f} s  {failed} failed",
            nl=False,
            err=True,
        )


def _end_progress() -> None:
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)


if __name__ == "__main__":
    main()
