"""What a follower takes of what it was sent."""

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchBuilder, assign, split_batches
from odradek.replication.fetched_batches import check_epochs, checked


def batch(base_offset: int, epoch: int = 0) -> bytearray:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(1_700_000_000_000 + number, b"k", b"v")
    built = bytearray(builder.build())
    assign(built, base_offset, epoch)
    return built


def offsets(results: object) -> list[int]:
    assert isinstance(results, list)
    return [header.base_offset for header, _ in results]


def test_whole_batches_are_taken_in_order() -> None:
    assert offsets(checked([batch(0) + batch(3) + batch(6)])[0]) == [0, 3, 6]


def test_nothing_sent_is_nothing_found() -> None:
    assert checked([None, b""]) == [[], []]


def test_what_is_cut_short_at_the_end_is_left_for_the_next_fetch() -> None:
    both = batch(0) + batch(3)
    for cut in range(len(batch(0)), len(both)):
        assert offsets(checked([both[:cut]])[0]) == [0]


@pytest.mark.parametrize("position", [8, 16, 17, 20, 21, 40, 65])
def test_a_damaged_batch_ends_what_is_taken_and_is_refused_when_it_is_the_first(position: int) -> None:
    first, second = batch(0), batch(3)
    second[position] ^= 0x10
    assert offsets(checked([first + second])[0]) == [0]
    (refused,) = checked([second + first])
    assert isinstance(refused, KafkaError)
    assert refused.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


def test_damage_in_one_partition_is_not_that_of_others() -> None:
    bad = batch(0)
    bad[-1] ^= 1
    checked_batches = checked([bad, batch(0)])
    assert isinstance(checked_batches[0], KafkaError)
    assert offsets(checked_batches[1]) == [0]


def test_an_epoch_above_the_leaders_own_is_damage() -> None:
    batches = split_batches(batch(0, 2) + batch(3, 5))
    check_epochs(batches, 5)
    with pytest.raises(KafkaError, match="epoch 5 was fetched from a leader of epoch 4"):
        check_epochs(batches, 4)
