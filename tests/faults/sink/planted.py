"""Known mistakes in an exactly-once sink: the run and its checker must find them, or "nothing lost" means nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from odradek.spark.exactly_once import driver, prepare, task
from odradek.spark.exactly_once.decision import Decision, driver_id, participant_id


def _ends_before_it_decides() -> None:
    """The tasks' transactions are committed first: a driver that dies in between writes its batch again."""
    decide = driver.SinkDriver.decide

    def decide_late(self: driver.SinkDriver, *given: Any) -> None:
        terms, name, participants = given[:3]
        self.carry_out(
            Decision(
                sink_id=self._sink_id,
                query=name.query,
                batch=name.batch,
                side=terms.side,
                driver=(terms.driver.producer_id, terms.driver.producer_epoch),
                participants=tuple(participants),
            )
        )
        decide(self, *given)

    driver.SinkDriver.decide = decide_late  # type: ignore[method-assign, assignment]


def _writes_decided_batches_again() -> None:
    """A batch that is run again is written again, though its decision is there."""
    task.is_written = lambda *given, **more: False


def _forgets_what_was_decided() -> None:
    """The next driver aborts what the last one decided and did not carry out."""

    def shut_out_others(self: driver.SinkDriver) -> Any:
        name = driver_id(self._sink_id)
        identity = self._admin.fence_producers([name])[name]
        return identity, driver.last_decision(self._admin, self._sink_id)

    driver.SinkDriver._shut_out_others = shut_out_others  # type: ignore[method-assign]


def _shares_names() -> None:
    """Tasks are named by their number in the process alone: two processes fence each other."""
    reserve_name, writer = prepare.reserve_name, "0" * 12

    def share(
        servers: str, sink_id: str, terms: driver.BatchTerms, timeout_s: float
    ) -> prepare.TransactionName:
        name = reserve_name(servers, sink_id, terms, timeout_s)
        transactional_id = participant_id(sink_id, writer, terms.side, name.slot)
        return replace(name, writer=writer, transactional_id=transactional_id)

    prepare.reserve_name = share


PLANTED: Final[Mapping[str, Callable[[], None]]] = {
    "ends before it decides": _ends_before_it_decides,
    "writes decided batches again": _writes_decided_batches_again,
    "forgets what was decided": _forgets_what_was_decided,
    "shares names": _shares_names,
}
"""By name: what makes the mistake in this process."""
