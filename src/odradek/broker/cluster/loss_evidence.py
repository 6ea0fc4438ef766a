"""Conclusions about a replica from the cluster's state, the registry's record of the broker's disks, and the disks.

One table, in `judged`. Its rule: a replica that the cluster counts on (it is in the ISR, or eligible) and
that is not what it was never leads. If other replicas have the records, it keeps what is left and fetches the
rest; if none has them, it is offline until an operator brings the disk back or accepts the loss. A log is
created only if there is no evidence that it existed before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from odradek.cluster.image import PartitionImage
from odradek.model.ids import BrokerId
from odradek.storage.directories.log_manager import MissingLogAction
from odradek.storage.files.lack_notes import LackNote


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFindings:
    """The findings from the registry's record of this broker's disks."""

    is_gone: bool = False
    """A directory that this broker had is not there: lost, swapped, or taken out of log.dirs."""
    older: frozenset[str] = frozenset()
    """Paths of directories that are older copies: the same disk was newer once."""


ALL_THERE: Final = DiskFindings()


@dataclass(frozen=True, slots=True, kw_only=True)
class LossFinding:
    """The way to open a replica's log; see `LogDirectories.open_log`."""

    repairable: bool
    if_absent: MissingLogAction
    lack: str | None = None
    is_counted_on: bool = True
    """Whether the cluster counts on the replica, for a note about missing records."""
    is_uncertain: bool = False
    """A log that is found may lack what was acknowledged before it was on the disk."""


def judged(
    state: PartitionImage,
    me: BrokerId,
    *,
    is_new: bool = False,
    was_held: bool = False,
    is_on_older: bool = False,
    forgot: bool = False,
    findings: DiskFindings = ALL_THERE,
) -> LossFinding:
    """Decides whether a partition's log on this broker lost records. `is_new`: the partition came to this
    broker in this life. `was_held`: its disks have evidence that its log was created. `is_on_older`: its log
    is in a directory that is an older copy. `forgot`: its records were acknowledged before they were on the
    disk, and the machine lost its memory."""
    safe = {*state.isr, *state.eligible}
    others_have_it = bool(safe - {me})
    lack = "its log directory is an older copy of what this broker had" if is_on_older else None
    had_records = was_held or findings.is_gone or bool(findings.older)
    if (
        me not in safe
    ):  # it fetches what it lacks; until then any other is better, should all that count be lost
        absent = MissingLogAction.LACKS if had_records and not is_new else MissingLogAction.MAKE
        return LossFinding(
            repairable=others_have_it,
            if_absent=absent,
            lack=lack,
            is_counted_on=False,
            is_uncertain=forgot and not is_new,
        )
    if is_new:
        absent = MissingLogAction.MAKE
    elif had_records:
        absent = MissingLogAction.LACKS if others_have_it else MissingLogAction.LOST
    else:  # all brokers may have died just when the topic was created: then someone must lead
        absent = MissingLogAction.DOUBTED if others_have_it else MissingLogAction.MAKE
    return LossFinding(
        repairable=others_have_it, if_absent=absent, lack=lack, is_uncertain=forgot and not is_new
    )


ACCEPTED: Final = LossFinding(repairable=True, if_absent=MissingLogAction.MAKE)
"""An operator accepted the loss: the replica continues with the records that it has."""


def is_loss_accepted(state: PartitionImage, me: BrokerId) -> bool:
    """Returns whether this broker was elected although it lacks records: by command, or because the topic allows it."""
    return state.leader == me and state.recovering


def note_after(note: LackNote, *, counts: bool, leads: bool) -> LackNote | None:
    """Returns the note that remains with this state of the cluster; None when nothing remains.

    A replica on which the cluster counts again, after it did not, was fetched and found in sync.
    """
    if leads or (counts and not note.is_counted_on):
        return None
    return replace(note, is_counted_on=counts)
