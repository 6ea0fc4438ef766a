"""The short form of `make soak`: everything at once, for half a minute; nothing is lost, and everyone was served."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from tests.soak.run import Terms, run
from tests.soak.samples import series


def test_nothing_is_lost_and_no_one_stands_still_where_everything_happens_at_once(tmp_path: Path) -> None:
    samples = tmp_path / "samples.jsonl"

    run_result = run(Terms.of(30.0, 11), tmp_path / "brokers", samples, tell=lambda line: None)

    assert run_result.is_clean, run_result.text()
    assert run_result.ledger.acknowledged_count > 200
    assert run_result.counts["seen_by_the_share_group"] > 0
    assert run_result.counts["generated_frames"] > 0
    assert {f"broker {number} rss_bytes" for number in (1, 2)} <= series(samples).keys()
