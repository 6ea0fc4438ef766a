"""Spark's insides: sessions, the JVM, and the processes of Python's workers."""
