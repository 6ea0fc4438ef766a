"""From a directory to an open log: lazily after a clean close, by recovery after a crash (`opener.py`)."""
