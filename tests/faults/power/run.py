"""One run: clusters on images, clients that write, power cuts, and the count of what was lost."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.faults.power.cuts import BROKERS, Cut, PoweredCluster
from tests.faults.power.reading_back import Finding, compare
from tests.faults.power.witnesses import LEDGER, PARTITIONS, TRANSFERS, Witnesses
from tests.faults.replicas import differing_replicas
from tests.kit.cluster import kill_all
from tests.kit.waiting import seconds_until

from odradek.model.errors import OdradekError

TOGETHER: Final = "together"
ONE_AFTER_ANOTHER: Final = "one after another"
ONE: Final = "one broker, the others go on"
_KINDS: Final = (TOGETHER, TOGETHER, ONE_AFTER_ANOTHER, ONE)
_HEAL_SECONDS: Final = 90.0
_EXAMPLES: Final = 5
_TOLD_MAX: Final = 3000
_FAILURES_MAX: Final = 3
_GIVEN_UP: Final = "given up: the disks were never quiet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    cuts: int
    seed: int
    cuts_per_start: int = 12
    per_second: int = 400
    settings: Mapping[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = _KINDS
    rest_seconds: tuple[float, float] = (0.05, 0.6)
    keep: Path | None = None
    """Where what is left by a cut is kept, if something is wrong with it."""
    examiners: int = 2
    """Cuts that are looked at side by side."""


@dataclass(slots=True)
class Result:
    terms: Terms
    cuts: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    """Acknowledgements that were checked, all cuts together."""
    bad: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By cut: what was wrong."""
    starts: int = 0
    """Clusters that were made, cut, and looked at to the end."""

    @classmethod
    def resumed(cls, terms: Terms, noted: dict[str, Any]) -> Result:
        """What `as_json` said of an earlier run with the same seed goes on."""
        if noted["seed"] != terms.seed:
            raise OdradekError(f"it was of seed {noted['seed']}, not of {terms.seed}")
        return cls(terms, Counter(noted["cuts"]), noted["checked"], noted["bad"], noted["starts"])

    @property
    def is_clean(self) -> bool:
        return not self.bad

    @property
    def lossy_cuts(self) -> int:
        return sum(
            1 for results in self.bad.values() if results.keys() & {"lost", "misplaced", "torn", "behind"}
        )

    def note(self, name: str, finding: Finding) -> None:
        self.checked += finding.acknowledged
        if not finding.is_clean:
            self.bad[name] = finding.everything()

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.terms.seed,
            "cuts": dict(self.cuts),
            "checked": self.checked,
            "bad": self.bad,
            "starts": self.starts,
        }

    def text(self) -> str:
        lines = [
            f"seed {self.terms.seed}: {self.cuts.total()} cuts, {self.checked:,} acknowledgements checked"
        ]
        lines += [f"  {count:4} x {kind}" for kind, count in sorted(self.cuts.items())]
        lines.append(f"cuts after which something was wrong: {len(self.bad)}")
        for name, kinds in self.bad.items():
            for kind, results in kinds.items():
                lines.append(f"  {name}: {kind} {len(results)}: {', '.join(results[:_EXAMPLES])}")
        return "\n".join(lines)


def run(
    terms: Terms,
    directory: Path,
    *,
    earlier: Result | None = None,
    tell: Callable[[str], None] = lambda line: None,
    note: Callable[[Result], None] = lambda run_result: None,
) -> Result:
    """Begin, or go on with an `earlier` run; `note` gets it after each start. A start that fails is bad; the next is tried."""
    run_result = earlier if earlier is not None else Result(terms)
    failures = 0
    while run_result.cuts.total() < terms.cuts and failures < _FAILURES_MAX:
        start = run_result.starts
        name = f"start {start}{', the registry survives' if start % 3 == 2 else ''}"
        before, cuts_before, began = len(run_result.bad), run_result.cuts.total(), time.monotonic()
        home = directory / f"start-{start}"
        home.mkdir()
        try:
            cluster = PoweredCluster(home, terms.settings, registry_survives=start % 3 == 2)
            with cluster.running():
                _one_start(cluster, terms, random.Random(f"{terms.seed}:{start}"), run_result, name)
            failures = 0
        except (OdradekError, KafkaException, OSError, subprocess.SubprocessError, AssertionError):
            failures += 1
            run_result.bad[f"{name}, which failed"] = {"unusable": [traceback.format_exc()]}
            _keep_logs(home, terms.keep)
        run_result.starts += 1
        note(run_result)
        for bad, outcome in list(run_result.bad.items())[before:]:
            tell(f"{bad}: {outcome}"[:_TOLD_MAX])
        seconds_each = (time.monotonic() - began) / max(run_result.cuts.total() - cuts_before, 1)
        tell(
            f"{name}: {run_result.cuts.total()} cuts ({seconds_each:.1f} s each), {len(run_result.bad)} of them bad, "
            f"{run_result.checked:,} checked"
        )
        shutil.rmtree(home)
    return run_result


def _keep_logs(home: Path, keep: Path | None) -> None:
    """What the brokers of a start said in which something was wrong with the clients or the cluster itself."""
    if keep is None:
        return
    place = keep / home.name
    place.mkdir(parents=True, exist_ok=True)
    for log in home.glob("*.log"):
        shutil.copy(log, place / log.name)


def _one_start(
    cluster: PoweredCluster, terms: Terms, rng: random.Random, run_result: Result, name: str
) -> None:
    """Cut again and again while clients write; then look at what each cut left, and at the cluster itself."""
    logs = cluster.directory if terms.keep is not None else None
    witnesses = Witnesses(cluster.fleet.bootstrap, per_second=terms.per_second, logs=logs)
    witnesses.start()
    _wait_for(witnesses)
    wanted = min(terms.cuts_per_start, terms.cuts - run_result.cuts.total())
    before = len(run_result.bad)
    left: list[Cut] = []
    was_cut_alone = False
    for _ in range(wanted):
        time.sleep(rng.uniform(*terms.rest_seconds))
        kind = rng.choice(terms.kinds)
        if kind == ONE:
            done = cluster.cut_one(rng)
            was_cut_alone |= done
        else:
            cut = (
                cluster.cut_together(witnesses)
                if kind == TOGETHER
                else cluster.cut_one_after_another(witnesses, rng)
            )
            done = cut is not None
            left += [cut] if cut is not None else []
        run_result.cuts[kind if done else _GIVEN_UP] += 1
    if was_cut_alone:
        _check_the_living(cluster, witnesses, run_result, name)
    else:
        witnesses.finish(0.0)
    kill_all(cluster.fleet)
    if was_cut_alone:
        placement = [cluster.directory / broker for broker in BROKERS]
        differing = [
            line for topic in (LEDGER, TRANSFERS) for line in differing_replicas(placement, topic, PARTITIONS)
        ]
        if differing:
            run_result.bad[f"{name}, replicas differ"] = {"misplaced": differing}
        if len(run_result.bad) > before:
            _keep_logs(cluster.directory, terms.keep)
    with ThreadPoolExecutor(terms.examiners) as examiners:
        for cut, outcome in zip(
            left, examiners.map(lambda cut: cluster.examine(cut, terms.keep), left), strict=True
        ):
            run_result.note(f"{name}, {cut.directory.name} ({cut.kind})", outcome)


def _check_the_living(cluster: PoweredCluster, witnesses: Witnesses, run_result: Result, name: str) -> None:
    name = f"{name}, after brokers lost power one by one"
    unanswered = witnesses.finish(_HEAL_SECONDS)
    if unanswered:
        run_result.bad[f"{name}: clients"] = {"unusable": unanswered}
    run_result.note(name, compare(cluster.fleet.bootstrap, witnesses.testimony()))
    wait_until_in_sync(cluster.fleet.bootstrap, (LEDGER, TRANSFERS))


def wait_until_in_sync(address: str, topics: tuple[str, ...]) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def in_sync() -> bool:
        there = admin.list_topics(timeout=_HEAL_SECONDS).topics
        return all(topic in there for topic in topics) and all(
            len(partition.isrs) == len(BROKERS)
            for topic in topics
            for partition in there[topic].partitions.values()
        )

    if seconds_until(in_sync, _HEAL_SECONDS) is None:
        raise OdradekError(f"not all replicas of {topics} are in sync after {_HEAL_SECONDS:.0f} s")


def _wait_for(witnesses: Witnesses) -> None:
    deadline = time.monotonic() + _HEAL_SECONDS
    while not witnesses.has_begun():
        if time.monotonic() > deadline or witnesses.failures():
            raise OdradekError(f"the clients could not begin: {witnesses.failures()}")
        time.sleep(0.02)
