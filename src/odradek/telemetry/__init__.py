"""Structured events: what happened, with values for where and to whom."""
