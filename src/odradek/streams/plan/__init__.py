"""The logical plan: what a program asks for, as immutable values. No Spark."""
