"""Queries as programs of `odradek.streams`."""

from odradek.sql.planning.explaining import explain
from odradek.sql.planning.plan import Plan, plan, select_plan

__all__ = ["Plan", "explain", "plan", "select_plan"]
