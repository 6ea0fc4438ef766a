"""A change of a pipeline's document is there for the reader that asks next, whose connection is another one."""

from __future__ import annotations

from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.store import PipelineStore
from odradek.testing import LocalBroker

BROKERS = 8
"""The first marker of a broker's life is the one that comes late: with the first commit, in some of these."""


def test_a_change_is_readable_when_it_returns() -> None:
    version = PipelineVersion(number=1, program="totals.py", made_ms=1, checkpoint="totals")
    for _ in range(BROKERS):
        with (
            LocalBroker() as broker,
            PipelineStore(broker.address) as store,
            PipelineStore(broker.address) as other,
        ):
            store.change("totals", lambda _: PipelineDocument(name="totals", versions=(version,)))
            assert list(other.documents()) == ["totals"]
            store.change("totals", lambda _: None)
            assert list(other.documents()) == []
