"""Who acts, as Kafka writes it: a type, a colon, a name."""

from typing import Final

ANONYMOUS: Final = "User:ANONYMOUS"
"""A client that does not authenticate."""
