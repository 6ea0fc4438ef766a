"""Which epoch a producer has after a transaction, without a question to its coordinator. Pure."""

from __future__ import annotations

from typing import Final

_FORESEEABLE_MAX: Final = 32_000
"""Near 32,767 the coordinator hands out another producer id, and a lost answer costs an epoch, too: then it is asked."""


def epoch_after_commit(epoch: int, *, epoch_per_transaction: bool) -> int | None:
    """The epoch that follows; None where only the coordinator can tell. `epoch_per_transaction`: KIP-890."""
    return epoch + 1 if epoch_per_transaction and epoch < _FORESEEABLE_MAX else None
