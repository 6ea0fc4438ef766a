"""What the ACL APIs say while there is no authorizer: the words and the code of a Kafka broker without one."""

from __future__ import annotations

from typing import Final

REASON: Final = "no authorizer is configured on this broker: every client may do everything"
