"""Queries as programs of `odradek.streams`."""

from odradek.sql.planning.plan import Plan, explain, explained_plan, plan, select_plan, sink_id

__all__ = ["Plan", "explain", "explained_plan", "plan", "select_plan", "sink_id"]
