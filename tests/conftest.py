"""What holds for every test."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """`tests.again` asks how the run ended: one that broke off says nothing about the tests that it did not reach."""
    if session.config.cache is not None and not hasattr(session.config, "workerinput"):
        session.config.cache.set("odradek/exit", int(exitstatus))
