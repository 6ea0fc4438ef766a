"""One face for four unmodified clients, so that a test says what it wants once and runs with each of them."""

from tests.interop.adapters.aio import AioKafkaClient
from tests.interop.adapters.confluent import ConfluentClient
from tests.interop.adapters.kcat import KcatClient
from tests.interop.adapters.pure import KafkaPythonClient
from tests.interop.adapters.rows import AbsentError, Client, DeliveryReport, Read, Row

CLIENTS: tuple[type[Client], ...] = (ConfluentClient, KafkaPythonClient, AioKafkaClient, KcatClient)

__all__ = [
    "CLIENTS",
    "AbsentError",
    "AioKafkaClient",
    "Client",
    "ConfluentClient",
    "DeliveryReport",
    "KafkaPythonClient",
    "KcatClient",
    "Read",
    "Row",
]
