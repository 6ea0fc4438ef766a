"""The seeds of the fuzzing, and a few hundred mutations of each: `python -m tests.security.fuzz` runs millions."""

from random import Random

import pytest
from tests.security.fuzz.mutations import mutated, seeds_of
from tests.security.fuzz.targets import TARGETS

from odradek.security.sasl.exchange import ExchangeStep, LoginSuccess
from odradek.security.sasl.plain import PlainServer

EXECUTIONS = 300


def test_every_target_has_seeds() -> None:
    assert seeds_of().keys() == TARGETS.keys()


@pytest.mark.check(3, 17, 21, 26)
@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_log_in_or_break_what_reads_them(name: str) -> None:
    random, corpus = Random(name), seeds_of()[name]
    for data in (*corpus, b"", b"\0" * 5000, *(mutated(random, corpus) for _ in range(EXECUTIONS))):
        TARGETS[name](data)


def test_a_target_sees_a_login_that_should_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def anyone(server: PlainServer, response: bytes) -> ExchangeStep:
        return ExchangeStep(end=LoginSuccess(user="alice"))

    monkeypatch.setattr(PlainServer, "step", anyone)
    with pytest.raises(AssertionError):
        TARGETS["plain"](b"\0alice\0a guess")
