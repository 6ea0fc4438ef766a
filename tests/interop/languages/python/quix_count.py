"""A Quix Streams application: counts words by key, exactly once, with state. Arguments: servers, source, sink, group, state."""

import sys
from pathlib import Path

from quixstreams import Application
from quixstreams.state import State

servers, source, sink, group, directory = sys.argv[1:]
app = Application(
    broker_address=servers,
    consumer_group=group,
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.2,
    state_dir=Path(directory),
    # One that was killed is forgotten soon, and so is its transaction: its name is not used again.
    consumer_extra_config={"session.timeout.ms": 6000},
    producer_extra_config={"transaction.timeout.ms": 6000},
)


def count(value: str, state: State) -> str:
    seen = state.get("seen", 0) + 1
    state.set("seen", seen)
    return str(seen)


frame = app.dataframe(app.topic(source, value_deserializer="str"))
frame = frame.apply(count, stateful=True)
frame.to_topic(app.topic(sink, value_serializer="str"))
app.run()
