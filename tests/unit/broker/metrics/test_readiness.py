"""What makes a broker not ready."""

import pytest

from odradek.broker.metrics.readiness import ProbeFinding, ProbeLevel, report


@pytest.mark.parametrize(
    ("levels", "is_ready"),
    [
        ([], True),
        ([ProbeLevel.OK], True),
        ([ProbeLevel.OK, ProbeLevel.WARNING], True),
        ([ProbeLevel.WARNING, ProbeLevel.FAILED], False),
    ],
)
def test_a_failed_finding_makes_a_broker_not_ready(levels: list[ProbeLevel], is_ready: bool) -> None:
    findings = [ProbeFinding(subject="disks", level=level, reason="why") for level in levels]
    shown_ready, text = report(findings)
    assert shown_ready is is_ready
    assert text.splitlines() == [
        *(f"[{level.value}] disks: why" for level in levels),
        "ready" if is_ready else "not ready",
    ]
