"""Makes each fdatasync of a process slow while the file INCIDENT_SLOW_DISK exists. Python imports this at its start."""

import os
import time

_SECONDS = 0.8
_flag = os.environ.get("INCIDENT_SLOW_DISK", "")
_fdatasync = os.fdatasync


def _slow(number: int) -> None:
    if os.path.exists(_flag):
        time.sleep(_SECONDS)
    _fdatasync(number)


if _flag:
    os.fdatasync = _slow
