"""One attack tried: brokers start, figures before, the attack, figures after, everything ends, a verdict."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.hostile import heap
from tests.hostile.attack import (
    BYSTANDER_TOPIC,
    TARGET_PARTITIONS,
    TARGET_TOPIC,
    Attack,
    Scale,
    Stage,
    create_topic,
    log_of,
)
from tests.hostile.figures import MEBIBYTE, Figures, PeakWatch, loop_hold_count
from tests.hostile.latencies import Bystander, Latencies, by_phase
from tests.kit.cluster import cluster
from tests.kit.waiting import seconds_until
from tests.kit.wire import BlockingWire, parse_address

from odradek.cli.serving.broker_processes import Fleet

P99_MS_MAX: Final = 50.0
LATENCY_MS_MAX: Final = 250.0
_LANES: Final = frozenset({"produce", "fetch", "heartbeat"})
_START_SECONDS: Final = 30.0
_RELEASE_SECONDS: Final = 10.0
_LIMITED = 'ulimit -n {limit} && exec "$@"'


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of one attack on so many brokers."""

    attack: str
    claim: str
    brokers: int
    absent: str | None = None
    seconds: float = 0.0
    before: Figures = field(default_factory=Figures)
    most: Figures = field(default_factory=Figures)
    after: Figures = field(default_factory=Figures)
    latencies: dict[str, Latencies] = field(default_factory=dict)
    """By phase: before, during, after."""
    lanes_p99_ms: dict[str, float] = field(default_factory=dict)
    """During the attack, by what was asked: a slow disk holds up produces alone, a busy loop everything."""
    machine_load: float = 0.0
    """Processes that wanted a processor, on average over a minute, when the attack was over."""
    seconds_to_calm: float | None = None
    loop_hold_count: int = 0
    wrongs: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    """Latency targets that were missed; a wrong under `--strict` alone."""
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.attack if self.brokers == 1 else f"{self.attack} ({self.brokers} brokers)"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "title": self.title}


def try_attack(attack: Attack, brokers: int, scale: Scale, tell: Callable[[str], None]) -> Outcome:
    """OdradekError when the brokers do not even start; whatever else fails is in the outcome."""
    outcome = Outcome(attack=attack.name, claim=attack.claim, brokers=brokers)
    outcome.absent = attack.absent() if attack.absent else None
    if outcome.absent is not None:
        return outcome
    with ExitStack() as ending:
        home = ending.enter_context(_home(attack, brokers, scale.keep))
        ending.enter_context(attack.directory_of(home) if attack.directory_of else nullcontext())
        fleet = _planned(attack, brokers, home)
        ending.enter_context(fleet)
        _make_topics(fleet)
        bystander = ending.enter_context(Bystander(fleet.bootstrap, BYSTANDER_TOPIC))
        stage = Stage(attack=attack, scale=scale, fleet=fleet, bystander=bystander, tell=tell)
        _play(stage, outcome)
    outcome.wrongs += stage.wrongs
    outcome.notes = stage.notes
    return outcome


@contextmanager
def _home(attack: Attack, brokers: int, keep: Path | None) -> Iterator[Path]:
    """An empty directory for one run."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="odradek-hostile-") as temporary:
            yield Path(temporary)
        return
    home = keep / f"{attack.name.replace(' ', '-')}-{brokers}"
    home.mkdir(parents=True)
    yield home


def _planned(attack: Attack, brokers: int, home: Path) -> Fleet:
    settings = {
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        **attack.settings,
    }
    directories = ",".join(str(home / name) for name in attack.log_directories)
    options = ("--data", directories) if directories else ()
    prefix = ["env", *(f"{name}={value}" for name, value in heap.environment(home).items())]
    if attack.descriptors is not None:
        prefix += ["sh", "-c", _LIMITED.format(limit=attack.descriptors), "sh"]
    return cluster(
        home, settings, brokers=brokers, options=options, changed=lambda terms: replace(terms, prefix=prefix)
    )


def _make_topics(fleet: Fleet) -> None:
    address = parse_address(fleet.bootstrap)
    create_topic(BlockingWire(address), BYSTANDER_TOPIC, partitions=1, copies=-1)
    create_topic(BlockingWire(address), TARGET_TOPIC, partitions=TARGET_PARTITIONS, copies=-1)


def _play(stage: Stage, outcome: Outcome) -> None:
    began = time.monotonic()
    if seconds_until(lambda: stage.bystander.kinds_since(began) >= _LANES, _START_SECONDS) is None:
        outcome.wrongs.append("the bystander was not served, even before the attack")
        return
    if stage.attack.prepare is not None:
        stage.attack.prepare(stage)
    quiet = time.monotonic()
    time.sleep(3.0 if stage.scale.is_full else 1.0)
    outcome.before = stage.weigh()
    logs = {broker.node_id: log_of(broker).stat().st_size for broker in stage.fleet.brokers}
    attacked = time.monotonic()
    with PeakWatch(stage.watched()) as watch:
        try:
            stage.attack.run(stage)
        except (OSError, AssertionError) as error:
            outcome.wrongs.append(f"the attack broke off: {type(error).__name__}: {error}")
    over = time.monotonic()
    outcome.seconds = over - attacked
    outcome.seconds_to_calm = seconds_until(
        lambda: stage.bystander.kinds_since(over) >= _LANES, stage.scale.calm_seconds
    )
    calm = time.monotonic()
    time.sleep(3.0 if stage.scale.is_full else 1.0)
    phases = by_phase(stage.bystander.answers_since(quiet), attacked=attacked, calm=calm)
    outcome.latencies = {phase: Latencies.of(answers) for phase, answers in phases.items()}
    for lane in sorted(_LANES):
        own = Latencies.of([answered for answered in phases["during"] if answered.kind == lane])
        outcome.lanes_p99_ms[lane] = round(own.p99_ms, 1)
    outcome.machine_load = round(os.getloadavg()[0], 1)
    outcome.most = watch.most
    _weigh(stage, outcome, logs)


def _weigh(stage: Stage, outcome: Outcome, logs: dict[int, int]) -> None:
    """What is wrong, whatever the attack was."""
    attack = stage.attack
    dead = [broker.node_id for broker in stage.fleet.brokers if not broker.is_alive]
    stage.must(not dead, f"brokers {dead} have ended")
    if outcome.seconds_to_calm is None:
        outcome.wrongs.append(f"the bystander has no answer {stage.scale.calm_seconds:.0f} s afterwards")
    if dead:
        return
    before = outcome.before
    allowed_rss_bytes = before.rss_bytes + attack.kept_bytes_max
    allowed_descriptors = before.descriptors + attack.descriptors_kept_max
    seconds_until(
        lambda: _is_released(stage.figures(), allowed_rss_bytes, allowed_descriptors),
        _RELEASE_SECONDS if stage.scale.is_full else _RELEASE_SECONDS / 2,
    )
    after = outcome.after = stage.weigh()
    grown = outcome.most.rss_bytes - before.rss_bytes
    logged = 0
    for broker in stage.fleet.brokers:
        text = log_of(broker).read_bytes()[logs[broker.node_id] :]
        logged = max(logged, len(text))
        outcome.loop_hold_count += loop_hold_count(log_of(broker), logs[broker.node_id])
        tracebacks = text.count(b"Traceback")
        stage.must(not tracebacks, f"{tracebacks} tracebacks in the log of broker {broker.node_id}")
        forgotten = text.count(b"was never awaited")
        stage.must(not forgotten, f"{forgotten} coroutines were never awaited by broker {broker.node_id}")
    stage.notes["logged_bytes"] = logged
    stage.must(
        grown <= attack.grown_bytes_max,
        f"memory grew by {_mib(grown)}, {_mib(attack.grown_bytes_max)} allowed",
    )
    stage.notes["free_in_the_allocator"] = _mib(after.rss_bytes - after.held_bytes)
    kept = after.held_bytes - before.held_bytes
    stage.must(
        kept <= attack.kept_bytes_max,
        f"{_mib(kept)} of memory are kept afterwards, {_mib(attack.kept_bytes_max)} allowed",
    )
    stage.must(
        logged <= attack.log_bytes_max,
        f"{logged / MEBIBYTE:.1f} MB of log, {attack.log_bytes_max / MEBIBYTE:.1f} allowed",
    )
    stage.must(
        after.descriptors <= allowed_descriptors,
        f"{after.descriptors} descriptors are open afterwards, {before.descriptors} were before",
    )
    stage.must(
        after.close_wait_count == 0, f"{after.close_wait_count} sockets are left in CLOSE_WAIT afterwards"
    )
    if attack.is_bystander_judged:
        _judge_latency(outcome)


def _is_released(figures: Figures, rss_bytes: int, descriptors: int) -> bool:
    """Whether connections that ended are closed, and memory went back."""
    return (
        figures.rss_bytes <= rss_bytes
        and figures.descriptors <= descriptors
        and figures.close_wait_count == 0
    )


def _judge_latency(outcome: Outcome) -> None:
    during = outcome.latencies["during"]
    if during.p99_ms > P99_MS_MAX:
        lanes = ", ".join(f"{lane} {p99_ms:.0f}" for lane, p99_ms in outcome.lanes_p99_ms.items())
        outcome.slow.append(
            f"p99 {during.p99_ms:.0f} ms, target {P99_MS_MAX:.0f} ({lanes}; load {outcome.machine_load:.1f})"
        )
    if during.max_ms > LATENCY_MS_MAX:
        outcome.slow.append(f"max {during.max_ms:.0f} ms, target {LATENCY_MS_MAX:.0f}")
    if during.troubles:
        worst = ", ".join(f"{count} x {what}" for what, count in list(during.troubles.items())[:3])
        # In a cluster on a busy machine a leader may change for other reasons.
        verdict = outcome.wrongs if outcome.brokers == 1 else outcome.slow
        verdict.append(f"the bystander had to ask again: {worst}")


def _mib(count: int) -> str:
    return f"{count / MEBIBYTE:.0f} MB"
