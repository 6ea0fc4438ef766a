"""The comparison of scrapes: lags are compared, ratios are those of a round, an exporter that cannot be had is absent."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.peer import PeerAbsentError
from benchmarks.samples import Sample
from benchmarks.watching.exporter import (
    OURS,
    PEER,
    LagsDisagreeError,
    built_exporter,
    check_lags,
    lags_of,
    report,
    series_count,
)

PAGE = b"""# HELP kafka_consumergroup_lag Lag.
# TYPE kafka_consumergroup_lag gauge
kafka_consumergroup_lag{partition="0",consumergroup="g",topic="t"} 3
kafka_consumergroup_lag{consumergroup="g",topic="t",partition="1"} 0
kafka_consumergroup_lag_sum{consumergroup="g",topic="t"} 3
"""
LAGS = {("g", "t", "0"): 3.0, ("g", "t", "1"): 0.0}


def test_lags_are_read_whatever_the_order_of_their_labels() -> None:
    assert lags_of(PAGE) == LAGS
    assert lags_of(b"") == {}
    assert series_count(PAGE) == 3


@pytest.mark.parametrize(
    ("actual", "difference"),
    [
        ({**LAGS, ("g", "t", "1"): 1.0}, "partition 1 of t is 1.0, and was to be 0.0"),
        ({("g", "t", "0"): 3.0}, "partition 1 of t is missing, and was to be 0.0"),
        ({**LAGS, ("other", "t", "0"): 0.0}, "group other in partition 0 of t is 0.0, and was to be missing"),
    ],
    ids=["another value", "a lag is missing", "a lag too many"],
)
def test_the_first_difference_of_lags_is_an_error(
    actual: dict[tuple[str, str, str], float], difference: str
) -> None:
    check_lags(PEER, dict(LAGS), LAGS)
    with pytest.raises(LagsDisagreeError, match=f"^{PEER}: .*{difference}"):
        check_lags(PEER, actual, LAGS)


def test_a_ratio_is_ours_to_theirs_of_the_same_round() -> None:
    values = {PEER: (10.0, 40.0), OURS: (5.0, 10.0)}
    samples = [
        Sample(
            measure="scrape",
            condition="",
            quantity="ms",
            better="lower",
            contender=contender,
            round_number=number,
            value=value,
        )
        for contender, both in values.items()
        for number, value in enumerate(both)
    ]
    theirs, ours = report(samples).splitlines()
    assert "25.0 (10.0 to 40.0)" in theirs
    assert "of kafka_exporter's" not in theirs
    assert "7.5 (5.0 to 10.0); 0.375 of kafka_exporter's (0.250 to 0.500)" in ours


def test_an_exporter_that_cannot_be_built_is_absent_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerAbsentError, match="there is no go on this machine"):
        built_exporter()
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'go: some line' >&2\necho '\tno such version' >&2\nexit 1\n")
    go.chmod(0o755)
    with pytest.raises(PeerAbsentError, match=r"`go install .*kafka_exporter@v.*` failed: no such version$"):
        built_exporter()
    go.write_text('#!/bin/sh\n: > "$GOBIN/kafka_exporter"\n')
    assert built_exporter().read_bytes() == b""
    go.unlink()
    assert built_exporter().name == "kafka_exporter", "what was built once is used again"
