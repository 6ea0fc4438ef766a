"""Functions of SQL: which there are, what they take and return, and what Spark runs for them."""

from odradek.sql.functions.library import FUNCTIONS, FunctionLibrary

__all__ = ["FUNCTIONS", "FunctionLibrary"]
