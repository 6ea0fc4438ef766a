"""Whether a broker is ready, with the reasons: for probes and for rolling restarts.

A finding makes a broker not ready only if it is about this broker itself. Otherwise one broker that is down would make all
others not ready, and a load balancer would send clients nowhere. A finding about others is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.broker.requests.context import BrokerContext
from odradek.cluster.image import NO_LEADER
from odradek.runtime.turns import Turn

_NAMED_MAX: Final = 5


class ProbeLevel(Enum):
    """The meaning of a finding for a probe."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFinding:
    """One thing that was checked."""

    subject: str
    level: ProbeLevel
    reason: str = ""

    def __str__(self) -> str:
        return f"[{self.level.value}] {self.subject}" + (f": {self.reason}" if self.reason else "")


def report(findings: Iterable[ProbeFinding]) -> tuple[bool, str]:
    """Returns whether nothing failed, and a line for each finding."""
    findings = list(findings)
    is_ready = all(finding.level is not ProbeLevel.FAILED for finding in findings)
    lines = [*map(str, findings), "ready" if is_ready else "not ready"]
    return is_ready, "\n".join(lines) + "\n"


async def findings_of(broker: BrokerContext, turn: Turn) -> list[ProbeFinding]:
    """Looks at directories, registry and partitions. Called on the loop."""
    findings = [_directories(broker), _registry(broker), _offline_replicas(broker)]
    behind: list[str] = []
    under: list[str] = []
    leaderless: list[str] = []
    me = broker.config.server.node_id
    for topic in list(broker.image.topics.values()):
        for index, state in enumerate(topic.partitions):
            await turn.step()
            if me not in state.replicas:
                continue
            name = f"{topic.name}-{index}"
            if state.leader == NO_LEADER:
                leaderless.append(name)
            elif me not in state.isr and me not in state.adding:
                behind.append(name)
            elif state.leader == me and len(state.isr) < len(state.replicas) - len(state.adding):
                under.append(name)
    return [
        *findings,
        _about(
            "replicas in sync", behind, ProbeLevel.FAILED, "replica(s) of this broker are not in sync yet"
        ),
        _about("under-replicated partitions", under, ProbeLevel.WARNING, "led here lack a replica in sync"),
        _about("offline partitions", leaderless, ProbeLevel.WARNING, "with a replica here have no leader"),
    ]


def _about(subject: str, names: list[str], level: ProbeLevel, what: str) -> ProbeFinding:
    if not names:
        return ProbeFinding(subject=subject, level=ProbeLevel.OK)
    return ProbeFinding(subject=subject, level=level, reason=f"{len(names)} {what}: {_named(names)}")


def _named(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _directories(broker: BrokerContext) -> ProbeFinding:
    failed = [
        f"{directory.path} ({directory.offline})"
        for directory in broker.replicas.directories.all()
        if directory.offline is not None
    ]
    if failed:
        return ProbeFinding(
            subject="log directories", level=ProbeLevel.FAILED, reason=f"cannot be used: {_named(failed)}"
        )
    troubled = [
        f"{directory.path} is {directory.condition.name}"
        for directory in broker.replicas.directories.all()
        if directory.condition.name
    ]
    level = ProbeLevel.WARNING if troubled else ProbeLevel.OK
    return ProbeFinding(subject="log directories", level=level, reason=_named(troubled))


def _registry(broker: BrokerContext) -> ProbeFinding:
    cluster = broker.cluster
    if cluster.joining is not None:
        reason = "this broker has not joined its cluster yet"
    elif not any(
        member.broker_id == broker.config.server.node_id and member.epoch == cluster.broker_epoch
        for member in broker.image.brokers
    ):
        reason = "the cluster does not count this broker: its session with the registry has ended"
    elif cluster.controller_id is None:
        return ProbeFinding(
            subject="registry", level=ProbeLevel.WARNING, reason="no controller is known at the moment"
        )
    else:
        return ProbeFinding(subject="registry", level=ProbeLevel.OK)
    return ProbeFinding(subject="registry", level=ProbeLevel.FAILED, reason=reason)


def _offline_replicas(broker: BrokerContext) -> ProbeFinding:
    names = [f"{name} ({reason})" for name, reason in broker.replicas.health.offline_reasons.items()]
    return _about("offline replicas", names, ProbeLevel.FAILED, "replica(s) of this broker cannot be used")
