"""Generated frames: the same seed makes the same ones, and the outcome that each must have is known beforehand."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from tests.hostile.generated import Fate, Generator, fate_of, is_wish
from tests.hostile.values import Blowing, Known, array_places
from tests.kit.wire import request_frame

from odradek.protocol import api_by_name, decode, decode_request_header, encode
from odradek.protocol.api import APIS
from odradek.protocol.messages.data.produce import ProduceRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest

EVERY_API = frozenset(APIS)
CREATE_PARTITIONS = api_by_name("CreatePartitions").key
DELETE_TOPICS = api_by_name("DeleteTopics").key


def test_a_seed_makes_the_same_batches_again() -> None:
    first, second = (Generator(7, Known()) for _ in range(2))
    assert [first.batch(number) for number in range(50)] == [second.batch(number) for number in range(50)]
    assert first.batch(3) != Generator(8, Known()).batch(3)


def test_batches_have_frames_of_every_fate_and_at_most_one_that_is_not_answered() -> None:
    generator = Generator(7, Known())
    fates: Counter[Fate] = Counter()
    for number in range(300):
        *before, last = generator.batch(number).frames
        assert {frame.fate for frame in before} <= {Fate.ANSWERED}
        fates.update([last.fate, *(frame.fate for frame in before)])
    assert min(fates[fate] for fate in Fate) > 50


def test_a_damaged_frame_is_no_wish_for_something_that_stays() -> None:
    """A byte of CreatePartitions made hundreds of partitions, whose descriptors looked like a leak."""
    generator = Generator(7, Known())
    wishes = [
        frame.data
        for number in range(2000)
        for frame in generator.batch(number).frames
        if is_wish(frame.data)
    ]
    assert len(wishes) > 50
    for data in wishes:
        header, position = decode_request_header(data)
        request, _ = decode(APIS[header.api_key].request, header.api_version, data, position)
        assert request.validate_only if hasattr(request, "validate_only") else header.api_key == DELETE_TOPICS
        if header.api_key == CREATE_PARTITIONS:
            assert {topic.count for topic in request.topics} <= {8}


@pytest.mark.parametrize(
    ("frame", "fate"),
    [
        (request_frame(MetadataRequest(topics=[]), 8)[4:], Fate.ANSWERED),
        (request_frame(MetadataRequest(topics=[]), 8)[4:-1], Fate.DROPPED),
        (request_frame(ProduceRequest(acks=0), 8)[4:], Fate.EITHER),
        (struct.pack(">hhih", 999, 0, 1, -1), Fate.DROPPED),
        (struct.pack(">hhih", 3, 99, 1, -1), Fate.DROPPED),
    ],
    ids=["readable", "cut", "without acknowledgement", "unknown API", "unknown version"],
)
def test_the_fate_of_a_frame_is_known(frame: bytes, fate: Fate) -> None:
    assert fate_of(frame, EVERY_API) is fate


def test_every_array_of_every_version_can_be_blown_up_to_a_size() -> None:
    blowing = Blowing(Known())
    for api in APIS.values():
        for version in api.versions:
            for place in array_places(api.request, version):
                for are_equal in (True, False):
                    count = blowing.element_count(api.request, version, place, 5_000, are_equal=are_equal)
                    message = blowing.request(api.request, version, place, count=count, are_equal=are_equal)
                    encoded = encode(message, version)
                    assert 2_500 < len(encoded) < 10_000, (api.name, version, str(place))
                    assert decode(api.request, version, encoded)[1] == len(encoded)
