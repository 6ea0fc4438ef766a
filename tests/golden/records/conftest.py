"""Every test in this folder runs on both record engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.records import engine


@pytest.fixture(autouse=True, scope="module", params=["compiled", "plain"])
def record_engine(request: pytest.FixtureRequest) -> Iterator[str]:
    chosen = engine.PLAIN if request.param == "plain" else engine.compiled()
    if chosen is None:
        pytest.skip("the package was installed without a compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "active", chosen)
        yield request.param
