"""Decides whether a task's batch must be written. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.model.errors import ConfigError
from odradek.spark.exactly_once.decision import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchName:
    """Which batch of which query a task writes."""

    query: str
    batch: int
    is_keyed: bool = False
    """The query is an idempotence key that the user gave: a write of its own, with no batch before it."""


def is_written(name: BatchName, decided: Decision | None, sink_id: str, *, taking_over: bool) -> bool:
    """Tells whether the batch is part of the output already.

    ConfigError when the decision before it does not lead to it, so that writing it could double or lose rows;
    `taking_over`: the user accepts that.
    """
    if decided is not None and (decided.query, decided.is_keyed) == (name.query, name.is_keyed):
        if decided.batch >= name.batch:
            return True
        if decided.batch == name.batch - 1 or taking_over:
            return False
        raise ConfigError(
            f"batch {name.batch} of query {name.query} does not follow the last decision of sink {sink_id!r}, which is"
            f" for batch {decided.batch}: the decisions are older than the checkpoint. Rows of the batches between may be"
            " missing; set takeOver=true to continue nevertheless"
        )
    if taking_over or (decided is None and name.batch == 0):
        return False
    if name.is_keyed:
        if decided is None or decided.is_keyed:
            return False
        raise ConfigError(
            f"sink {sink_id!r} belongs to query {decided.query}, which would not know its own decision any more after a batch"
            " write: use another sinkId, or set takeOver=true if that query has ended for good"
        )
    if decided is None:
        raise ConfigError(
            f"batch {name.batch} of query {name.query} is the first that sink {sink_id!r} knows of: either the query ran"
            " without delivery=exactly_once before, or the sink's decisions have expired, and then the batch may have been"
            " written. Set takeOver=true to go on"
        )
    raise ConfigError(
        f"sink {sink_id!r} belongs to query {decided.query}, which has written its batch {decided.batch}; this is batch"
        f" {name.batch} of query {name.query}. A fresh checkpoint reads its input again and would double it: use another"
        " sinkId, or the old checkpoint, or set takeOver=true if this query starts where the other one ended"
    )
