"""`odradek pipelines serve`: a supervisor and its membership, until someone asks it to end."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from odradek.model.aliases import ClientSettings
from odradek.model.errors import OdradekError
from odradek.net.metrics_page import MetricsPage, PageTerms
from odradek.pipelines.document import PipelineDocument
from odradek.pipelines.lifecycle import RestartPolicy
from odradek.pipelines.membership import SESSION_MS, SupervisedTopics
from odradek.pipelines.program_file import ProgramSources
from odradek.pipelines.runner_process import RunnerProcess
from odradek.pipelines.status import PipelineStatus, pipeline_families, supervised
from odradek.pipelines.supervisor import Supervisor
from odradek.runtime.ports import Clock, Entropy
from odradek.telemetry import events
from odradek.telemetry.metrics import Family

TURN_S: Final = 0.2
STOPPING_TURN_S: Final = 0.02
ASK_OWNER_EVERY_S: Final = 2.0
_log = events.get("pipelines")

Launch = Callable[[PipelineDocument], RunnerProcess]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeTerms:
    """The terms of a supervisor."""

    servers: str
    state_directory: Path
    """The directory of checkpoints; a lock in it keeps a second supervisor of this machine out."""
    name: str
    """The supervisor's name, by which others see it."""
    client: ClientSettings = field(default_factory=dict, repr=False)
    """Settings of all its clients, such as how they log in, by their Python names."""
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    session_ms: int = SESSION_MS
    metrics: PageTerms | None = None
    """The metrics listener; None: there is none."""


class AnotherSupervisor(OdradekError):
    """The state directory is in use."""


def serve(
    terms: ServeTerms,
    launch: Launch,
    clock: Clock,
    entropy: Entropy,
    *,
    should_stop: Callable[[], bool],
    should_kill: Callable[[], bool] = lambda: False,
    pause: Callable[[float], None],
    tell: Callable[[str], None],
) -> None:
    """Supervises until `should_stop`; then all runners are stopped, or killed as soon as `should_kill`. `tell` gets one line
    when it begins, and when it waits.

    AnotherSupervisor when one of this machine has the state directory.
    """
    serving = _Serving(terms, launch, clock, entropy, pause, tell, should_kill)
    with _only_one(terms.state_directory), ExitStack() as closing:
        if terms.metrics is not None:
            page = closing.enter_context(MetricsPage(terms.metrics, serving.families))
            tell(f"metrics on {page.url}")
        serving.run(should_stop)


class _Serving:
    def __init__(
        self,
        terms: ServeTerms,
        launch: Launch,
        clock: Clock,
        entropy: Entropy,
        pause: Callable[[float], None],
        tell: Callable[[str], None],
        should_kill: Callable[[], bool],
    ) -> None:
        self._terms, self._launch, self._should_kill = terms, launch, should_kill
        self._clock, self._entropy, self._pause, self._tell = clock, entropy, pause, tell
        self._announced_owner: str | None = None
        self._ask_owner_at = 0.0
        self._supervisor: Supervisor | None = None
        self._statuses: tuple[tuple[str, PipelineStatus], ...] = ()
        """Replaced as a whole after each turn, for the thread of the metrics listener."""

    def families(self) -> list[Family]:
        """Returns the metrics of this supervisor. Called on another thread."""
        works = supervised(self._supervisor is not None)
        return [works, *pipeline_families(self._statuses, self._clock.wall_ms())]

    def run(self, should_stop: Callable[[], bool]) -> None:
        terms = self._terms
        topics = SupervisedTopics(
            terms.servers,
            self._clock,
            settings={**terms.client, "client_id": terms.name},
            on_lost=self._lost,
            session_ms=terms.session_ms,
        )
        with topics:
            try:
                while not should_stop():
                    self._turn(topics)
            finally:
                self._stop_all()

    def _turn(self, topics: SupervisedTopics) -> None:
        try:
            changes = topics.wait(TURN_S)
            if changes is None:
                self._begin(topics)
            elif self._supervisor is not None:
                self._supervisor.follow(changes)
        except OdradekError as error:  # the brokers are away: pipelines that run go on
            _log.warning("brokers_away", reason=str(error))
            self._pause(TURN_S)
        if self._supervisor is not None:
            self._supervisor.turn()
            self._statuses = self._supervisor.statuses()
        else:
            self._statuses = ()
            self._say_who_has_it(topics)

    def _begin(self, topics: SupervisedTopics) -> None:
        documents, statuses = topics.everything()
        self._supervisor = Supervisor(
            topics, self._launch, self._clock, self._entropy, name=self._terms.name, policy=self._terms.policy
        )
        self._supervisor.begin(documents, statuses)
        self._announced_owner = None
        self._tell(f"supervising {len(documents)} pipelines of {self._terms.servers}")

    def _say_who_has_it(self, topics: SupervisedTopics) -> None:
        now = self._clock.monotonic()
        if now < self._ask_owner_at:
            return
        self._ask_owner_at = now + ASK_OWNER_EVERY_S
        owner = topics.owner()
        if owner is not None and owner != self._announced_owner and not topics.supervises:
            self._announced_owner = owner
            self._tell(
                f"{owner} supervises the pipelines of {self._terms.servers}: this one waits until that ends"
            )

    def _lost(self) -> None:
        _log.warning(
            "supervision_lost",
            reason="another member of the group has it, or this one kept silent for too long",
        )
        self._stop_all()

    def _stop_all(self) -> None:
        """Stops all processes and returns once they have ended: after `stopping_max_s` it kills them."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        supervisor.halt()
        supervisor.turn()
        while not supervisor.is_idle:
            if self._should_kill():
                supervisor.kill()
            self._pause(STOPPING_TURN_S)
            supervisor.turn()


@contextmanager
def _only_one(state_directory: Path) -> Iterator[None]:
    """The lock ends with the process, however that ends."""
    state_directory.mkdir(parents=True, exist_ok=True)
    with (state_directory / "supervisor.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise AnotherSupervisor(
                f"process {lock.read().strip() or 'unknown'} supervises pipelines in {state_directory}:"
                " stop it, or name another directory (--state)"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def runner_command(document: PipelineDocument) -> Callable[[int, int], list[str]]:
    """Returns the words that start the runner of a document. Every user of the machine can read them, so they hold no
    setting."""

    def words(commands: int, reports: int) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "odradek.pipelines.runner", "--name", document.name),
            *("--commands", str(commands), "--reports", str(reports)),
        ]

    return words


def runner_terms(
    document: PipelineDocument, servers: str, state_directory: Path, sources: ProgramSources
) -> bytes:
    """Returns what a document's runner reads from its standard input. `sources` names where its program may come from."""
    version = document.current
    checkpoint = version.checkpoint
    terms = {
        "servers": servers,
        "checkpoint": checkpoint if "://" in checkpoint else str(state_directory / checkpoint),
        "delivery": document.delivery,
        "master": document.master,
        "conf": document.conf,
        "suffix": version.suffix,
        "program": version.program,
        "args": version.args,
        "places": asdict(sources),
    }
    return json.dumps(terms).encode()
