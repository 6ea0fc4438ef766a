"""What a broker concludes about a replica: one table."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.cluster.loss_evidence import (
    DiskFindings,
    LossFinding,
    is_loss_accepted,
    judged,
    note_after,
)
from odradek.cluster.image import PartitionImage
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.storage.directories.log_manager import MissingLogAction
from odradek.storage.files.lack_notes import LackNote

ME, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
GONE, OLDER = DiskFindings(is_gone=True), DiskFindings(older=frozenset({"/data"}))
MAKE, DOUBTED, LACKS, LOST = (
    MissingLogAction.MAKE,
    MissingLogAction.DOUBTED,
    MissingLogAction.LACKS,
    MissingLogAction.LOST,
)


def state(*isr: BrokerId, eligible: tuple[BrokerId, ...] = (), **more: Any) -> PartitionImage:
    return PartitionImage(
        leader=more.pop("leader", isr[0]),
        leader_epoch=LeaderEpoch(4),
        replicas=(ME, OTHER, THIRD),
        isr=isr,
        eligible=eligible,
        **more,
    )


@pytest.mark.parametrize(
    ("partition", "evidence", "if_absent"),
    [
        # no one counts on it: a replica that was added while the broker was away, or that left the ISR
        (state(OTHER), {}, MAKE),
        (state(OTHER), {"is_new": True, "findings": GONE}, MAKE),
        (state(OTHER), {"was_held": True}, LACKS),
        (state(OTHER), {"findings": GONE}, LACKS),
        # others have the records
        (state(ME, OTHER), {}, DOUBTED),
        (state(ME, eligible=(OTHER,)), {}, DOUBTED),
        (state(ME, OTHER), {"was_held": True}, LACKS),
        (state(OTHER, eligible=(ME,)), {"findings": GONE}, LACKS),
        (state(ME, eligible=(OTHER,)), {"was_held": True}, LACKS),
        # no one else has them
        (state(ME), {"was_held": True}, LOST),
        (state(ME), {"findings": GONE}, LOST),
        (state(ME), {"findings": OLDER}, LOST),
        # it was never made: the broker died right after the topic was created
        (state(ME), {}, MAKE),
        # it came in this life
        (state(ME), {"is_new": True}, MAKE),
        (state(ME, OTHER), {"is_new": True}, MAKE),
        (state(ME), {"is_new": True, "findings": GONE}, MAKE),
    ],
)
def test_a_log_that_is_not_found(
    partition: PartitionImage, evidence: Any, if_absent: MissingLogAction
) -> None:
    assert judged(partition, ME, **evidence).if_absent is if_absent


@pytest.mark.parametrize(
    ("partition", "is_on_older", "repairable", "lacks"),
    [
        (state(ME), False, False, False),
        (state(ME, OTHER), False, True, False),
        (state(ME), True, False, True),
        (state(ME, OTHER), True, True, True),
        (state(OTHER, eligible=(ME,)), True, True, True),
        (state(OTHER), True, True, True),
    ],
)
def test_a_log_that_is_found(
    partition: PartitionImage, is_on_older: bool, repairable: bool, lacks: bool
) -> None:
    how: LossFinding = judged(partition, ME, is_on_older=is_on_older, findings=OLDER if is_on_older else GONE)
    assert (how.repairable, how.lack is not None) == (repairable, lacks)


def test_the_note_of_a_lack_says_whether_the_cluster_counts_on_the_replica() -> None:
    """One that no one counts on follows as it is; but it does not rank with those that have their records."""
    assert not judged(state(OTHER), ME, was_held=True).is_counted_on
    assert judged(state(ME, OTHER), ME, was_held=True).is_counted_on


def test_only_an_unclean_election_of_this_broker_accepts_a_loss() -> None:
    assert is_loss_accepted(state(ME, recovering=True), ME)
    assert not is_loss_accepted(state(ME), ME)
    assert not is_loss_accepted(state(OTHER, recovering=True), ME)


@pytest.mark.parametrize(
    ("counted_before", "counts", "leads", "after"),
    [
        (True, True, False, True),  # no one acted upon it yet
        (True, False, False, False),  # the cluster counts on it no longer
        (False, False, False, False),
        (False, True, False, None),  # it was fetched, and is in sync again
        (True, True, True, None),  # the loss was accepted
    ],
)
def test_a_note_of_what_a_log_lacks_goes_when_it_is_in_sync_again_or_leads(
    counted_before: bool, counts: bool, leads: bool, after: bool | None
) -> None:
    note = note_after(LackNote(reason="r", is_counted_on=counted_before), counts=counts, leads=leads)
    assert (None if note is None else note.is_counted_on) is after


@pytest.mark.parametrize("partition", [state(ME), state(ME, OTHER), state(OTHER)])
def test_a_replica_whose_machine_lost_its_memory_is_uncertain_unless_it_came_since(
    partition: PartitionImage,
) -> None:
    assert judged(partition, ME, forgot=True).is_uncertain
    assert not judged(partition, ME).is_uncertain
    assert not judged(partition, ME, forgot=True, is_new=True).is_uncertain
