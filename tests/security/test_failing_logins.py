"""The short form of `python -m tests.security.failing_logins`: strangers that fail to log in stop no one."""

from tests.security.failing_logins import measure


async def test_a_client_goes_on_while_others_fail_to_log_in() -> None:
    measured = await measure(rate=100, seconds=1.0)
    assert measured["beside"]["requests"] > 0
    assert measured["beside"]["errors"] == []
    failures = measured["failures"]
    assert failures["refused"] == failures["begun"] > 0
