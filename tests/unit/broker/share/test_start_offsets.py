"""`share.auto.offset.reset=by_duration:...`"""

from __future__ import annotations

import pytest

from odradek.broker.share.start_offsets import duration_of


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("by_duration:P1D", 86_400_000),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P2DT3H4M5.5S", 183_845_500),
        ("by_duration:-PT1H", None),
        ("latest", None),
    ],
)
def test_a_duration_is_read(text: str, milliseconds: int | None) -> None:
    assert duration_of(text) == milliseconds
