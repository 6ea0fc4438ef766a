"""`odradek.show`: a topic, a group or a pipeline of a cluster, as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Unpack

from odradek.client.admin.group_descriptions import SHARE
from odradek.client.consumer.subscription_state import EARLIEST, LATEST
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy
from odradek.model.public import public
from odradek.notebook.picture import Picture, PictureRow
from odradek.runtime.real_clock import SystemClock

if TYPE_CHECKING:
    from odradek import client
    from odradek.client.admin.admin import Admin
    from odradek.client.admin.types import TopicDescription
    from odradek.client.settings.options import AdminOptions
    from odradek.pipelines import store as pipeline_store
    from odradek.pipelines.document import PipelineDocument
    from odradek.pipelines.status import PipelineStatus
else:
    client = lazy("odradek.client")
    pipeline_store = lazy("odradek.pipelines.store")

_TIMEOUT_MS: Final = 10_000
_MS: Final = 1_000


@public("odradek")
def show(
    servers: str = "127.0.0.1:9092",
    *,
    topic: str | None = None,
    group: str | None = None,
    pipeline: str | None = None,
    **settings: Unpack[AdminOptions],
) -> Picture:
    """Returns a picture of one topic, one group's lag or one pipeline, as it is now. A notebook draws it; `print` writes text.

        odradek.show(topic="orders")
        odradek.show("broker:9092", group="billing", security_protocol="SSL", ...)

    `settings`: of an admin client, such as how to log in. ValueError unless exactly one thing is named; KafkaError for what is
    not there, or may not be seen.
    """
    if sum(name is not None for name in (topic, group, pipeline)) != 1:
        raise ValueError("show one thing: topic=, group= or pipeline=")
    options: AdminOptions = {"default_api_timeout_ms": _TIMEOUT_MS, **settings}
    if pipeline is not None:
        return _pipeline(servers, pipeline, options)
    with client.Admin(servers, **options) as admin:
        return _topic(admin, topic) if topic is not None else _group(admin, group or "")


def _topic(admin: Admin, name: str) -> Picture:
    described = admin.describe_topics([name])[name]
    starts, ends = (_offsets(admin, described.topic_partitions, when) for when in (EARLIEST, LATEST))
    counts = {tp: max(ends[tp] - starts.get(tp, 0), 0) for tp in ends}
    largest = max(counts.values(), default=0)
    rows = []
    for partition in described.partitions:
        tp = TopicPartition(name, partition.partition)
        count = counts.get(tp)
        replicas = ", ".join(
            f"{broker}" if broker in partition.isr else f"{broker} (not in sync)"
            for broker in partition.replicas
        )
        leader = partition.leader if partition.leader >= 0 else None
        rows.append(
            PictureRow(
                cells=(partition.partition, leader, replicas, starts.get(tp), ends.get(tp), count),
                share=(count or 0) / largest if largest else 0.0,
            )
        )
    return Picture(
        title=f"Topic {name}",
        problems=_topic_problems(described),
        facts=(
            ("partitions", f"{len(described.partitions):,}"),
            ("offsets held", f"{sum(counts.values()):,}"),
            ("id", str(described.topic_id)),
        ),
        columns=("partition", "leader", "replicas", "start", "end", "offsets"),
        rows=tuple(rows),
        bar="share",
    )


def _topic_problems(described: TopicDescription) -> tuple[str, ...]:
    offline = sum(partition.leader < 0 for partition in described.partitions)
    behind = sum(len(partition.isr) < len(partition.replicas) for partition in described.partitions)
    problems = []
    if offline:
        problems.append(f"{offline} of {len(described.partitions)} partitions have no leader.")
    if behind:
        problems.append(f"{behind} of {len(described.partitions)} partitions lack a replica in sync.")
    return tuple(problems)


def _group(admin: Admin, group_id: str) -> Picture:
    described = admin.describe_groups([group_id])[group_id]
    positions: dict[TopicPartition, int] = (
        dict(described.start_offsets)
        if described.type == SHARE
        else {
            tp: committed.offset
            for tp, committed in admin.list_group_offsets(group_id).items()
            if committed is not None
        }
    )
    owners = {tp: member.client_id for member in described.members for tp in member.assignment}
    partitions = sorted({*positions, *owners})
    ends = _offsets(admin, partitions, LATEST)
    lags = {tp: max(ends[tp] - positions[tp], 0) for tp in partitions if tp in ends and tp in positions}
    largest = max(lags.values(), default=0)
    problems = []
    if lags and largest and not described.members:
        problems.append("The group has no member, and records wait.")
    unread = [tp for tp in partitions if tp not in positions]
    if unread:
        problems.append(f"{len(unread)} partitions have no committed offset.")
    return Picture(
        title=f"Group {group_id}",
        problems=tuple(problems),
        facts=(
            ("state", f"{described.state}, {described.type}"),
            ("members", f"{len(described.members):,}"),
            ("lag", f"{sum(lags.values()):,} records"),
        ),
        columns=("topic", "partition", "committed", "end", "lag", "client"),
        rows=tuple(
            PictureRow(
                cells=(
                    tp.topic,
                    tp.partition,
                    positions.get(tp),
                    ends.get(tp),
                    lags.get(tp),
                    owners.get(tp),
                ),
                share=lags.get(tp, 0) / largest if largest else 0.0,
            )
            for tp in sorted(partitions, key=lambda tp: -lags.get(tp, 0))
        ),
        bar="lag",
    )


def _pipeline(servers: str, name: str, settings: ClientSettings) -> Picture:
    timeout_ms = settings["default_api_timeout_ms"]
    rest = {key: value for key, value in settings.items() if key != "default_api_timeout_ms"}
    with pipeline_store.PipelineStore(servers, patience_ms=timeout_ms, **rest) as store:
        document = store.document(name)
        status = store.statuses().get(name)
        inputs = {} if status is None or status.inputs is None else status.inputs
        positions = {
            TopicPartition(topic, number): offset
            for topic, offsets in inputs.items()
            for number, offset in offsets.items()
        }
        ends = _offsets(store.admin, sorted(positions), LATEST)
    lags = {tp: max(ends[tp] - positions[tp], 0) for tp in positions if tp in ends}
    largest = max(lags.values(), default=0)
    problems = [] if status is None or status.failure is None else [f"It failed: {status.failure.line}"]
    return Picture(
        title=f"Pipeline {name}",
        problems=tuple(problems),
        facts=_pipeline_facts(document, status, sum(lags.values()) if positions else None),
        columns=("topic", "partition", "read to", "end", "lag"),
        rows=tuple(
            PictureRow(
                cells=(tp.topic, tp.partition, positions[tp], ends.get(tp), lags.get(tp)),
                share=lags.get(tp, 0) / largest if largest else 0.0,
            )
            for tp in sorted(positions, key=lambda tp: -lags.get(tp, 0))
        ),
        bar="lag",
    )


def _pipeline_facts(
    document: PipelineDocument, status: PipelineStatus | None, lag: int | None
) -> tuple[tuple[str, str], ...]:
    facts = [("wanted", document.desired.value), ("program", document.current.program)]
    if status is None:
        return (*facts, ("state", "unknown: no supervisor has seen it"))
    now_ms = SystemClock().wall_ms()
    facts.append(("state", f"{status.phase.value} for {max(now_ms - status.since_ms, 0) // _MS:,} s"))
    facts.append(("rows read by this process", f"{status.rows_count:,}"))
    if status.batch_ms is not None:
        facts.append(("last batch", f"{status.batch_ms:,.0f} ms"))
    if lag is not None:
        facts.append(("lag", f"{lag:,} records"))
    for output in () if status.outline is None else status.outline.outputs:
        sources = ", ".join(source.topic for source in output.sources)
        targets = ", ".join(output.topics) or "by each record"
        facts.append(("flow", f"{sources} → {output.name} → {targets}"))
    return tuple(facts)


def _offsets(admin: Admin, partitions: Iterable[TopicPartition], when: int) -> dict[TopicPartition, int]:
    """Returns the offsets of the partitions that there are, and that have a leader."""
    wanted = dict.fromkeys(partitions, when)
    if not wanted:
        return {}
    try:
        offsets = admin.list_offsets(wanted)
    except client.PartialFailureError as error:
        offsets = dict(error.results)
    except KafkaError as error:
        if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            raise
        offsets = {}
    return {tp: listed.offset for tp, listed in offsets.items()}
