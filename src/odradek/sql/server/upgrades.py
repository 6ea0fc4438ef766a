"""Judges whether a running query can continue with another statement: the modes of pipelines, by old and new program."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from odradek.client import Admin
from odradek.model.aliases import ClientSettings
from odradek.model.lazy import lazy
from odradek.pipelines.outline import ProgramOutline
from odradek.pipelines.upgrade import ModeVerdict, UpgradeMode, verdicts
from odradek.sql.language.statements import AlterQuery, CreateAsSelect
from odradek.sql.metastore.catalog import Catalog, PersistentQuery, SqlSource
from odradek.sql.planning import Plan, explain
from odradek.sql.queries.builds import PersistentBuild, PlannedText
from odradek.sql.queries.channel import StartQuery
from odradek.sql.queries.engine import SqlEngine
from odradek.sql.server.entities import Entity, described_plan, entity
from odradek.sql.server.topics.source_topics import SourceTopics
from odradek.sql.upgrades import next_topic, rebuild_reasons, with_mode
from odradek.streams.restore.checkpoint_directory import CheckpointDirectory
from odradek.values.errors import SqlError

if TYPE_CHECKING:
    from odradek.pipelines import carrying, upgrading
else:
    carrying = lazy("odradek.pipelines.carrying")
    upgrading = lazy("odradek.pipelines.upgrading")

Starting = Mapping[str, Mapping[int, int]]
_SHAPES: Final = re.compile(r"^the state of '([^']+)' changes: .*", re.DOTALL)
"""The reason has both shapes in words of programs."""
_EARLIER: Final = "is read from its first record, or from where an earlier version stopped"
_NEW_SOURCE: Final = "is new: it is read from where auto.offset.reset points"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedUpgrade:
    """An upgrade of a query, with the modes that are possible.

    `query`: as it runs now. `before`, `after`: its programs.
    """

    query: PersistentQuery
    order: StartQuery
    before: ProgramOutline
    after: ProgramOutline
    verdicts: tuple[ModeVerdict, ...]
    is_table: bool

    def chosen(self, wanted: UpgradeMode | None, statement: AlterQuery | CreateAsSelect) -> UpgradeMode:
        """Returns the chosen upgrade. SqlError states why the mode is not possible; None: why neither keep nor carry is."""
        modes = (UpgradeMode.KEEP, UpgradeMode.CARRY) if wanted is None else (wanted,)
        by_mode = {verdict.mode: verdict for verdict in self.verdicts}
        for mode in modes:
            if by_mode[mode].is_possible:
                return mode
        reasons = dict.fromkeys(reason for mode in modes for reason in by_mode[mode].reasons)
        shown = " or ".join(modes)
        hint = None
        if isinstance(statement, CreateAsSelect) and by_mode[UpgradeMode.CARRY].is_possible:
            kind, name = statement.kind.upper(), statement.name
            hint = f"ALTER {kind} {name} WITH (MODE='carry') AS SELECT … is possible."
        elif wanted is not UpgradeMode.REBUILD and by_mode[UpgradeMode.REBUILD].is_possible:
            kind = "TABLE" if self.is_table else "STREAM"
            hint = f"ALTER {kind} {statement.name} WITH (MODE='rebuild') AS SELECT … is possible."
        raise SqlError(
            f"{self.query.id} cannot go on by {shown}: {'; '.join(reasons)}", statement.position, hint
        )

    def starting(self, asked: Starting) -> dict[str, dict[int, int]]:
        """Returns where topics without a decision begin: those that the query reads where they began; new ones as asked."""
        known = set(self.before.topics)
        began = {
            topic: {int(partition): offset for partition, offset in json.loads(text)[topic].items()}
            for topic, text in self.order.starting.items()
            if topic in known
        }
        new = {topic: dict(offsets) for topic, offsets in asked.items() if topic not in known}
        return {**new, **began}


class RunningQueries(Protocol):
    """The queries of a catalog, as they run, and the topics that they read and write."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def engine(self) -> SqlEngine: ...

    @property
    def topics(self) -> SourceTopics: ...


class Upgrades:
    def __init__(self, running: RunningQueries) -> None:
        self._running = running

    async def judged(
        self,
        statement: AlterQuery | CreateAsSelect,
        catalog: Catalog,
        source: SqlSource,
        columns_change: str | None = None,
    ) -> JudgedUpgrade | None:
        """Returns which upgrade modes are possible for a query; None where no query runs that could go on.

        `catalog`: before the statement; `source`: what the query fills; `columns_change`: why its topic cannot take the new
        columns."""
        query = self._running.catalog.queries.get(source.query_id or "")
        wanted = None if query is None else self._running.engine.wanted.get(query.id)
        if query is None or wanted is None or not isinstance(wanted.order, StartQuery):
            return None
        build = wanted.order.build
        assert isinstance(build, PersistentBuild)
        text = PlannedText.of(catalog, statement.text)
        judged = await asyncio.to_thread(self._judge, query, wanted.order, build.text, text, source)
        if columns_change is None:
            return judged
        changed = tuple(
            verdict
            if verdict.mode is UpgradeMode.REBUILD
            else replace(verdict, reasons=(*verdict.reasons, columns_change))
            for verdict in judged.verdicts
        )
        return replace(judged, verdicts=changed)

    def _judge(
        self,
        query: PersistentQuery,
        order: StartQuery,
        now: PlannedText,
        then: PlannedText,
        source: SqlSource,
    ) -> JudgedUpgrade:
        before, after = now.outline(order.name), then.outline(order.name)
        before = _as_in_checkpoint(before, order.checkpoint)
        keep, carry, _ = verdicts(before, after, delivery="exactly_once", rebuilding=None)
        with self._admin() as admin:
            carry = carrying.with_changelogs(admin, carry, before, after)
            rebuild = self._rebuild(admin, source, after)
        return JudgedUpgrade(
            query=query,
            order=order,
            before=before,
            after=after,
            verdicts=tuple(map(_in_words, (keep, carry, rebuild))),
            is_table=source.is_table,
        )

    def _rebuild(self, admin: Admin, source: SqlSource, after: ProgramOutline) -> ModeVerdict:
        topic = next_topic(source)
        present = set(admin.list_topics(internal=True))
        reasons = rebuild_reasons(self._running.catalog, source)
        if topic in present:
            reasons.append(
                f"topic {topic} is there already: delete it first, or name another one with KAFKA_TOPIC"
            )
        notes = [f"{source.name} is in the topic {topic} from then on"]
        gone = upgrading.inputs_gone(admin, [read for read in after.topics if read in present])
        if gone:
            notes.append(f"inputs do not hold everything any more: {gone}; what was before is not read again")
        return ModeVerdict(mode=UpgradeMode.REBUILD, reasons=tuple(reasons), notes=tuple(notes))

    async def rebuilding(self, statement: AlterQuery, source: SqlSource) -> AlterQuery:
        """Returns the statement with the name of the topic that it fills. SqlError when that topic exists already."""
        named = dict(statement.properties).get("KAFKA_TOPIC")
        topic = next_topic(source) if named is None else str(named)
        if await self._running.topics.sizes(topic) is not None:
            raise SqlError(
                f"topic {topic} is there already",
                statement.position,
                "Delete it first, or name another one with KAFKA_TOPIC.",
            )
        return with_mode(statement, UpgradeMode.REBUILD, topic)

    async def prepare(self, judged: JudgedUpgrade, mode: UpgradeMode) -> None:
        """Topics for operators with state that are new: that they are empty is on purpose then."""

        def make() -> None:
            with self._admin() as admin:
                carrying.make_new_changelogs(admin, judged.before, judged.after)

        if mode is UpgradeMode.CARRY:
            await asyncio.to_thread(make)

    def _admin(self) -> Admin:
        settings: ClientSettings = self._running.topics.settings
        return Admin(self._running.topics.servers, **settings)


def explained(statement: AlterQuery, text: str, judged: JudgedUpgrade, planned: Plan) -> Entity:
    """Returns the answer of EXPLAIN ALTER: which modes are possible, and the plan."""
    modes = [
        {
            "mode": verdict.mode.value,
            "possible": verdict.is_possible,
            "reasons": list(verdict.reasons),
            "notes": list(verdict.notes),
        }
        for verdict in judged.verdicts
    ]
    lines = [
        f"{verdict.mode:7} {'yes' if verdict.is_possible else 'no':3}"
        f" {'; '.join((*verdict.reasons, *verdict.notes)) or '-'}"
        for verdict in judged.verdicts
    ]
    described = described_plan(planned, judged.query.id, statement.text, None)
    plan_text = "\n".join(["mode    possible, and why not", *lines, "", explain(planned)])
    return entity(
        "queryDescription",
        text,
        queryDescription={**described, "upgradeModes": modes, "executionPlan": plan_text},
    )


def _as_in_checkpoint(outline: ProgramOutline, checkpoint: str) -> ProgramOutline:
    """A checkpoint knows its sources by name, or does not, as it began."""
    outputs = tuple(
        replace(
            output,
            sources_named=output.sources_named
            and CheckpointDirectory(checkpoint).below(output.name).has_named_sources() is not False,
        )
        for output in outline.outputs
    )
    return replace(outline, outputs=outputs)


def _in_words(verdict: ModeVerdict) -> ModeVerdict:
    """A statement has one output, and no program."""

    def plain(remark: str) -> str:
        without_output = re.sub(r"^to-1:? ", "", remark)
        shape = _SHAPES.match(without_output)
        if shape is not None:
            return f"what {shape[1]} keeps of each key changes: its columns, or what it computes of them"
        return without_output.replace(_EARLIER, _NEW_SOURCE)

    return replace(
        verdict,
        reasons=tuple(map(plain, verdict.reasons)),
        notes=tuple(map(plain, verdict.notes)),
    )
