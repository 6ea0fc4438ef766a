"""Compaction: the newest value of each key stays, what was written over goes."""
