"""The pytest plugin: `def test_it(odradek_broker): ...` gets a real broker, shared by the session.

Found by pytest through the package's entry point. Nothing is imported before a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.local import LocalBroker


@pytest.fixture(scope="session")
def odradek_broker() -> Iterator[LocalBroker]:
    """A broker on a free port; `odradek_broker.address` is what clients call `bootstrap.servers`."""
    from odradek.testing.local import LocalBroker

    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def odradek_loop_watchdog() -> Iterator[None]:
    """The test fails when a callback of an event loop in this process takes more than 50 ms of CPU time."""
    from odradek.testing.loop_watchdog import callbacks_are_short

    with callbacks_are_short() as found:
        yield
    assert not found, "\n".join(found)
