"""A FastStream application: answers each message in capitals. Arguments: servers, source, sink, group."""

import asyncio
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker

servers, source, sink, group = sys.argv[1:]
broker = KafkaBroker(servers)
app = FastStream(broker)


@broker.subscriber(source, group_id=group, auto_offset_reset="earliest")
@broker.publisher(sink)
async def capitals(message: str) -> str:
    return message.upper()


asyncio.run(app.run())
