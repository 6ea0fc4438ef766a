"""Durations as Kafka's settings write them."""

from __future__ import annotations

import pytest

from odradek.model.durations import by_duration_ms


@pytest.mark.parametrize(
    ("reset", "milliseconds"),
    [
        ("by_duration:P1D", 86_400_000),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P2DT3H4M5.5S", 183_845_500),
        ("by_duration:-PT1H", None),
        ("by_duration:P", None),
        ("by_duration:P1Dx", None),
        ("latest", None),
    ],
)
def test_the_duration_of_an_offset_reset(reset: str, milliseconds: int | None) -> None:
    assert by_duration_ms(reset) == milliseconds
