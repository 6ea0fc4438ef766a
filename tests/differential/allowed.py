"""Where Odradek may answer otherwise than Kafka, and why. Nothing else may differ.

A place is a pattern over `script/step: path`, as the test prints it; `*` stands for anything. A difference that is on
purpose, or Kafka's own slip, stays; one that is a gap should go. A line that its script does not need any more fails the
test, but for those about all scripts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol

NOT_THERE: Final = "(not there)"
SILENCE: Final = "no answer at all"
_ANY: Final = object()


class Differs(Protocol):
    """What two brokers said at one place."""

    @property
    def where(self) -> str: ...
    @property
    def kafka(self) -> Any: ...
    @property
    def here(self) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    places: tuple[str, ...]
    why: str
    kafka: Any = _ANY
    here: Any = _ANY
    """What the two answer there; anything when not given."""
    gap: bool = False
    """Kafka is right, and Odradek is to follow."""

    @property
    def script(self) -> str:
        return self.places[0].split("/")[0]

    def fits(self, difference: Differs) -> bool:
        return (
            any(fnmatchcase(difference.where, place) for place in self.places)
            and (self.kafka is _ANY or bool(difference.kafka == self.kafka))
            and (self.here is _ANY or bool(difference.here == self.here))
        )


def _api_keys(*keys: int) -> tuple[str, ...]:
    return tuple(f"api_versions/newest: api_keys.{key}" for key in keys)


EVERYWHERE: Final = (
    Allowed(
        places=("*: *error_message",),
        kafka=None,
        here="<text>",
        why="Odradek says why, where Kafka leaves the message out.",
    ),
    Allowed(
        places=("*: *error_message",),
        kafka="",
        here="<text>",
        why="The same, where Kafka's message is empty.",
    ),
    Allowed(
        places=("*: *error_message",), kafka="", here=None, why="Null and an empty text both say: no message."
    ),
)

ON_PURPOSE: Final = (
    Allowed(
        places=_api_keys(71, 72),
        kafka=NOT_THERE,
        why="Kafka offers these only with a plug-in that receives what clients send. Odradek receives it itself.",
    ),
    Allowed(
        places=(
            "api_versions/*: supported_features.eligible.leader.replicas.version.min_version",
            "api_versions/*: supported_features.metadata.version.min_version",
        ),
        why="There is no metadata log whose format could change, and eligible leader replicas are always on.",
    ),
    Allowed(
        places=("access/DescribeUserScramCredentials version 0: ",),
        kafka=SILENCE,
        why="Kafka never answers a client that may not ask for credentials.",
    ),
    Allowed(
        places=("administration/the quorum, version 2: nodes.1.listeners.*",),
        why="Broker and controller are one here, and listen at one place.",
    ),
    Allowed(
        places=(
            "topics/*.configs.flush.before.ack",
            "configs/*.configs.flush.before.ack",
        ),
        kafka=NOT_THERE,
        why="Settings of Odradek's own.",
    ),
    Allowed(
        places=("configs/*: results.1.configs.*node.id*", "configs/*: results.1.configs.broker.id*"),
        why="Kafka's node has its id from its file, Odradek's by default; broker.id is only a synonym here.",
    ),
    Allowed(
        places=("configs/an operation that does not exist: responses.cf-one.error_code",),
        kafka=-1,
        here=42,
        why="Kafka fails inside; the request is what is invalid.",
    ),
    Allowed(
        places=("topics/a name that collides, a dot for an underscore: topics.tp_collides.*",),
        why="Kafka compares a new name with topics that exist, not with others of its request: there it lets the two "
        "collide whose metrics it keeps apart otherwise.",
    ),
    Allowed(
        places=("frames/a client that is no text: ",),
        why="Kafka replaces bytes that are not UTF-8; Odradek refuses the frame, as what it would log or keep is not what "
        "was sent.",
    ),
    Allowed(
        places=("metadata/neither id nor name: *",),
        why="Kafka fails inside, and answers -1 for all; the name is what is invalid.",
    ),
    Allowed(
        places=("produce/no batch: ",),
        kafka=SILENCE,
        why="Kafka never answers a partition without a batch; Odradek refuses it.",
    ),
    Allowed(
        places=(
            "produce/codec 5: *.error_code",
            "produce/codec 7: *.error_code",
            "produce/snappy that is none: *.error_code",
        ),
        kafka=-1,
        here=87,
        why="Kafka fails inside on a batch that cannot be unpacked; the record is what is invalid.",
    ),
    Allowed(
        places=("produce/half a batch: *.error_code", "produce/a length that lies: *.error_code"),
        kafka=87,
        here=2,
        why="A batch that does not end where it says is corrupt, and may be sent again; Kafka counts no batch at all.",
    ),
    Allowed(
        places=("produce/a batch and a half: *",),
        why="Kafka stores the whole batch and drops the half without a word; Odradek refuses both.",
    ),
    Allowed(
        places=(
            "produce/from before time: *.base_offset",
            "produce/without a time: *.base_offset",
            "produce/by id: *.base_offset",
            "produce/what is stored: *",
        ),
        why="After that, Kafka's offsets are one batch ahead.",
    ),
    Allowed(
        places=("produce/magic *: *.error_code",),
        kafka=87,
        here=43,
        why="Odradek names the format as what is wrong, as Kafka does where a topic's format is too old.",
    ),
    Allowed(
        places=("produce/*.log_start_offset", "idempotence/*.log_start_offset"),
        kafka=0,
        here=-1,
        why="Where a batch is refused late, Kafka tells the log's start beside the error; clients ignore it.",
    ),
    Allowed(
        places=("idempotence/*: *.log_append_time_ms",),
        here=-1,
        why="To a duplicate, Kafka answers the batch's largest time as that of the append; it is none.",
    ),
    Allowed(
        places=("idempotence/an epoch below zero: *.error_code",),
        kafka=47,
        here=87,
        why="A batch with a sequence and a negative epoch is invalid before any producer is looked up.",
    ),
    Allowed(
        places=("offsets/end of epoch -2: *",),
        why="Kafka takes -2 for an epoch before all others; there is none, so Odradek answers that it does not know it.",
    ),
    Allowed(
        places=("offsets/the largest time of nothing: *",),
        why="Kafka still tells the time of a record that was deleted.",
    ),
    Allowed(
        places=("fetching/*.aborted_transactions",),
        kafka=[],
        here=None,
        why="Beside an error there are no transactions: null and empty say the same.",
    ),
    Allowed(
        places=("fetching/fewer than none: *", "fetching/an isolation that does not exist: *"),
        why="Kafka fails inside, and answers -1; Odradek reads a negative size as zero, an unknown level as all.",
    ),
    Allowed(
        places=("fetching/leader epoch -2: *",),
        why="Kafka takes any negative epoch for none; Odradek only -1.",
    ),
    Allowed(
        places=("fetching/as a follower: *",),
        why="No replica follows a single broker: Odradek refuses the request, Kafka the partition.",
    ),
)

GAPS: Final = (
    Allowed(
        places=_api_keys(83, 84, 85, 86, 87),
        why="The state of share groups is asked for by brokers alone, and there is one.",
        gap=True,
    ),
)

ALLOWED: Final = EVERYWHERE + ON_PURPOSE + GAPS
