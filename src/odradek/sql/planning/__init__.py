"""Queries as programs of `odradek.streams`."""

from odradek.sql.planning.plan import Plan, explain, plan, select_plan

__all__ = ["Plan", "explain", "plan", "select_plan"]
