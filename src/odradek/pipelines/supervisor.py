"""The supervisor: it makes every pipeline do what its document asks for. A cluster has one supervisor at a time.

What it needs comes as arguments: topics (documents in, statuses out, ends of inputs), processes, time and chance. All
that it knows can be had again from the brokers: documents, and, of those that sleep, how far they had read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.pipelines.admission import RunRefused
from odradek.pipelines.document import PipelineDocument, is_candidate, pipeline_of, run_key, runs_of
from odradek.pipelines.lifecycle import Kill, Lifecycle, RestartPolicy, SendCommand, Start, behind
from odradek.pipelines.reports import Command, Report
from odradek.pipelines.runner_process import reason_of_end
from odradek.pipelines.status import Phase, PipelineStatus
from odradek.runtime.ports import Clock, Entropy
from odradek.telemetry import events

_log = events.get("pipelines")
PUBLISH_EVERY_S: Final = 5.0
"""The interval for publishing what changes all the time (rows, offsets, log); a phase is published at once."""
LOOK_EVERY_S: Final = 1.0
"""The interval for looking up the ends of the inputs of sleeping pipelines and candidates, in one request for all of them."""
SWAP_AGAIN_S: Final = 10.0
"""The time after which a swap that did not happen is asked for again."""


class Runner(Protocol):
    """A process; see `RunnerProcess`."""

    @property
    def pid(self) -> int: ...
    @property
    def log(self) -> Sequence[str]: ...
    def send(self, command: Command) -> None: ...
    def kill(self) -> None: ...
    def reports(self) -> list[Report]: ...
    def end(self) -> int | None: ...
    def close(self) -> None: ...


class PipelineTopics(Protocol):
    """The brokers' side; see `SupervisedTopics`."""

    def publish(self, name: str, status: PipelineStatus | None) -> None:
        """Publishes a status; never waits or raises. None: the pipeline has been removed."""

    def unsent(self) -> Collection[str]:
        """Returns the pipelines whose last status did not arrive."""

    def refresh(self, topics: Sequence[str]) -> None:
        """Begins to look up where all partitions of these topics end, unless that is under way."""

    def found(self) -> Mapping[TopicPartition, int] | None:
        """Returns the result of the last look, once; None while it is under way or failed."""

    def swap(self, name: str, number: int) -> None:
        """Begins to write that the candidate of this number is the pipeline's version now. The changed document comes later."""


@dataclass(slots=True, kw_only=True)
class _Pipeline:
    lifecycle: Lifecycle
    runner: Runner | None = None
    log: tuple[str, ...] = ()
    """The log of the last process, while none runs."""
    published: PipelineStatus | None = None
    published_at: float = float("-inf")
    phase_since: float | None = None
    phase_since_ms: int = 0
    """The same moment as `phase_since`, by the wall clock."""


class Supervisor:
    """Compares what runs with what documents ask for, and starts or stops runner processes.

    `turn` is called again and again, from one thread.
    """

    def __init__(
        self,
        topics: PipelineTopics,
        launch: Callable[[PipelineDocument], Runner],
        clock: Clock,
        entropy: Entropy,
        *,
        name: str,
        policy: RestartPolicy | None = None,
    ) -> None:
        """`name` is how others know this supervisor. `launch` raises OSError when there cannot be a process, and RunRefused
        or ConfigError when the document asks for what may not run.
        """
        self._topics = topics
        self._launch = launch
        self._clock = clock
        self._entropy = entropy
        self._name = name
        self._policy = policy or RestartPolicy()
        self._pipelines: dict[str, _Pipeline] = {}
        self._swaps: dict[str, float] = {}
        """Candidates that were ordered to replace the current version, and when."""
        self._looked_at = float("-inf")

    def begin(
        self, documents: Mapping[str, PipelineDocument], statuses: Mapping[str, PipelineStatus]
    ) -> None:
        """Begins with the documents, and the statuses of an earlier supervisor: pipelines that slept sleep on."""
        now = self._clock.monotonic()
        for document in documents.values():
            for key, wanted in runs_of(document).items():
                lifecycle = self._add(key, wanted)
                status = statuses.get(key)
                if status is None or status.version != wanted.current.number:
                    continue
                lifecycle.outline = status.outline
                if (
                    status.phase is Phase.SLEEPING
                    and status.inputs is not None
                    and status.revision == wanted.revision
                ):
                    lifecycle.fell_asleep(status.inputs, now)
        for key in statuses.keys() - self._pipelines.keys():
            self._topics.publish(key, None)

    def follow(self, documents: Mapping[str, PipelineDocument | None]) -> None:
        """Documents that have changed; None: it was deleted."""
        now = self._clock.monotonic()
        for name, document in documents.items():
            wanted: dict[str, PipelineDocument] = {}
            if document is not None:
                wanted = runs_of(document)
                self._promote(document)
            for key in [key for key in self._pipelines if pipeline_of(key) == name]:
                self._pipelines[key].lifecycle.follow(wanted.pop(key, None), now)
            for key, of_run in wanted.items():
                self._add(key, of_run)

    def turn(self) -> None:
        """Takes in events, does what is due, and publishes what has changed. Never waits."""
        self._check_inputs()
        self._publish_again()
        for name, pipeline in list(self._pipelines.items()):
            self._read_reports(pipeline)
            self._act(name, pipeline)
            self._publish(name, pipeline)
            if pipeline.lifecycle.is_over:
                del self._pipelines[name]
                self._swaps.pop(name, None)
                self._topics.publish(name, None)

    def halt(self) -> None:
        """Begins to stop all processes; they have ended when `is_idle`, after `stopping_max_s` at the latest, and a moment."""
        for pipeline in self._pipelines.values():
            pipeline.lifecycle.halt()

    def kill(self) -> None:
        """Ends all processes now, with what they started."""
        for pipeline in self._pipelines.values():
            if pipeline.runner is not None:
                pipeline.runner.kill()

    @property
    def is_idle(self) -> bool:
        """Whether no pipeline has a process."""
        return all(pipeline.runner is None for pipeline in self._pipelines.values())

    def statuses(self) -> tuple[tuple[str, PipelineStatus], ...]:
        """Returns the last published status of every run, with its key."""
        known = ((key, pipeline.published) for key, pipeline in self._pipelines.items())
        return tuple((key, status) for key, status in known if status is not None)

    # -- inside

    def _add(self, key: str, document: PipelineDocument) -> Lifecycle:
        lifecycle = Lifecycle(document, self._policy, self._entropy.uniform, self._clock.monotonic())
        self._pipelines[key] = _Pipeline(lifecycle=lifecycle)
        return lifecycle

    def _promote(self, document: PipelineDocument) -> None:
        """A candidate that has become the current version keeps running, and the version before it is stopped."""
        key = run_key(document.name, document.current.number)
        candidate, before = self._pipelines.get(key), self._pipelines.get(document.name)
        if candidate is None or before is None:
            return
        del self._pipelines[key]
        self._topics.publish(key, None)
        candidate.published = before.published = None
        self._pipelines[document.name] = candidate
        self._pipelines[run_key(document.name, before.lifecycle.document.current.number)] = before

    def _check_inputs(self) -> None:
        """Wakes sleeping pipelines that have input; swaps in candidates that have read nearly all."""
        watched = [
            (key, pipeline.lifecycle, pipeline.lifecycle.inputs)
            for key, pipeline in self._pipelines.items()
            if (pipeline.lifecycle.sleeps or is_candidate(key)) and pipeline.lifecycle.inputs is not None
        ]
        ends, now = self._topics.found(), self._clock.monotonic()
        if ends is not None:
            known = {tp.topic for tp in ends}
            for key, lifecycle, offsets in watched:
                lag = behind(offsets, {tp: end for tp, end in ends.items() if tp.topic in offsets})
                if lifecycle.sleeps and lag > 0:
                    lifecycle.moved()
                elif is_candidate(key) and offsets.keys() <= known:
                    self._swap_if_due(key, lifecycle, lag, now)
        if watched and now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            self._topics.refresh(sorted({topic for _, _, offsets in watched for topic in offsets}))

    def _swap_if_due(self, key: str, lifecycle: Lifecycle, lag: int, now: float) -> None:
        document = lifecycle.document
        if lifecycle.is_retired or lifecycle.phase not in (Phase.RUNNING, Phase.SLEEPING):
            return
        if lag <= document.swap_lag and now - self._swaps.get(key, float("-inf")) >= SWAP_AGAIN_S:
            self._swaps[key] = now
            _log.info("pipeline_swaps", pipeline=document.name, version=document.current.number, lag=lag)
            self._topics.swap(document.name, document.current.number)

    def _read_reports(self, pipeline: _Pipeline) -> None:
        runner, lifecycle = pipeline.runner, pipeline.lifecycle
        if runner is None:
            return
        code = runner.end()  # first: afterwards all that it reported before its end can be read
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        for report in runner.reports():
            lifecycle.reported(report, now, now_ms)
        if code is not None:
            pipeline.runner, pipeline.log = None, tuple(runner.log)
            runner.close()
            lifecycle.ended(reason_of_end(code, pipeline.log), code == 0, now, now_ms)
            if lifecycle.phase in (Phase.BACKING_OFF, Phase.FAILED) and lifecycle.failure is not None:
                _log.warning(
                    "pipeline_failed",
                    pipeline=lifecycle.document.name,
                    reason=lifecycle.failure.line,
                    place=str(lifecycle.failure.place or "unknown"),
                    phase=lifecycle.phase.value,
                    restart_in_s=lifecycle.restart_in_s,
                )

    def _act(self, name: str, pipeline: _Pipeline) -> None:
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        lifecycle = pipeline.lifecycle
        while (effect := lifecycle.step(now, now_ms)) is not None:
            match effect:
                case Start() if not self._has_capacity():
                    lifecycle.no_capacity(now)
                    return
                case Start():
                    try:
                        pipeline.runner = self._launch(lifecycle.document)
                    except (RunRefused, ConfigError) as error:
                        lifecycle.refused(str(error), now, now_ms)
                        _log.warning("pipeline_refused", pipeline=name, reason=str(error))
                    except OSError as error:
                        lifecycle.could_not_start(f"its process could not be started: {error}", now, now_ms)
                    else:
                        lifecycle.started(now)
                        _log.info("pipeline_started", pipeline=name, pid=pipeline.runner.pid)
                case SendCommand(command=command):
                    assert pipeline.runner is not None
                    pipeline.runner.send(command)
                case Kill():
                    assert pipeline.runner is not None
                    pipeline.runner.kill()
                    _log.warning("pipeline_killed", pipeline=name, pid=pipeline.runner.pid)

    def _has_capacity(self) -> bool:
        """Tells whether one more process may start."""
        running = [pipeline.lifecycle for pipeline in self._pipelines.values() if pipeline.runner is not None]
        starting = sum(lifecycle.phase is Phase.STARTING for lifecycle in running)
        most = self._policy.process_count_max
        return starting < self._policy.starting_count_max and (most is None or len(running) < most)

    def _publish_again(self) -> None:
        for name in self._topics.unsent():
            if name in self._pipelines:
                self._pipelines[name].published = None
            else:
                self._topics.publish(name, None)

    def _publish(self, name: str, pipeline: _Pipeline) -> None:
        status, published = self._status(pipeline), pipeline.published
        now = self._clock.monotonic()
        if status == published:
            return
        is_urgent = published is None or (
            published.phase,
            published.revision,
            published.failures_in_a_row,
        ) != (status.phase, status.revision, status.failures_in_a_row)
        if is_urgent or now - pipeline.published_at >= PUBLISH_EVERY_S:
            self._topics.publish(name, status)
            pipeline.published, pipeline.published_at = status, now

    def _status(self, pipeline: _Pipeline) -> PipelineStatus:
        lifecycle, runner = pipeline.lifecycle, pipeline.runner
        if pipeline.phase_since != lifecycle.phase_since:
            ago_s = self._clock.monotonic() - lifecycle.phase_since
            pipeline.phase_since = lifecycle.phase_since
            pipeline.phase_since_ms = self._clock.wall_ms() - round(ago_s * 1000)
        return PipelineStatus(
            name=lifecycle.document.name,
            phase=lifecycle.phase,
            revision=lifecycle.document.revision,
            version=lifecycle.document.current.number,
            since_ms=pipeline.phase_since_ms,
            supervisor=self._name,
            pid=runner.pid if runner is not None else None,
            failure=lifecycle.failure,
            failures_in_a_row=lifecycle.failures_in_a_row,
            restart_in_s=lifecycle.restart_in_s,
            rows_count=lifecycle.rows_count,
            batch_ms=lifecycle.batch_ms,
            inputs=lifecycle.inputs,
            outline=lifecycle.outline,
            log=tuple(runner.log) if runner is not None else pipeline.log,
        )
