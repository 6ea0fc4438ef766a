"""Arguments of the right type that no request has room for, or that no cluster can have: an error of ours, in one line.

The values come from the annotations of the public methods, as those of `test_wrong_arguments.py`. The broker is real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.unit.client.admin import wrong_values

from odradek.client.admin.aio import AsyncAdmin
from odradek.model.errors import OdradekError
from odradek.testing import LocalBroker

pytestmark = pytest.mark.interop
LINE_CHARS_MAX = 2_000


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


@pytest.fixture
async def admin(broker: LocalBroker) -> AsyncIterator[AsyncAdmin]:
    async with AsyncAdmin(broker.address, default_api_timeout_ms=300) as client:
        yield client


async def outcome(admin: AsyncAdmin, method: str, parameter: str, value: object) -> None:
    """Makes the call. Any error but the project's own fails the test."""
    is_patient = parameter == "timeout_s" and isinstance(value, float) and value > 0
    try:
        async with asyncio.timeout(1 if is_patient else 30):
            await getattr(admin, method)(**wrong_values.arguments(method, parameter, value))
    except TimeoutError:
        assert is_patient, f"{method}: {parameter}={value!r:.80} is still under way"
    except OdradekError as error:
        line = str(error)
        assert line
        assert "\n" not in line, (method, parameter, line)
        assert len(line) <= LINE_CHARS_MAX, (method, parameter, line[:LINE_CHARS_MAX])


@pytest.mark.parametrize("method", wrong_values.METHODS)
async def test_a_hostile_value_is_refused_in_one_line(admin: AsyncAdmin, method: str) -> None:
    calls = [
        outcome(admin, method, parameter, value)
        for parameter, hint in wrong_values.hints_of(method).items()
        for value in wrong_values.hostile(hint)
    ]
    await asyncio.gather(*calls)
    assert await admin.list_topics(timeout_s=10) is not None, "the client still works"
