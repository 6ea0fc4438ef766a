"""A change of a pipeline's document is there for the reader that asks next, whose connection is another one."""

from __future__ import annotations

import pytest
from tests.kit.waiting import eventually

from odradek.model.errors import ErrorCode, KafkaError
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


def test_a_change_counts_though_it_cannot_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the broker is busy")

    version = PipelineVersion(number=1, program="totals.py", made_ms=1, checkpoint="totals")
    document = PipelineDocument(name="totals", versions=(version,))
    with LocalBroker() as broker, PipelineStore(broker.address) as store:
        with monkeypatch.context() as patched:
            patched.setattr("odradek.pipelines.store.end_of", fails)
            assert store.change("totals", lambda _: document) is not None
        eventually(lambda: "totals" in store.documents(), "the change was lost")
