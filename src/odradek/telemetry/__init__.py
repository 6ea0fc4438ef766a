"""Structured events: what happened, with the values that say where and to whom."""
