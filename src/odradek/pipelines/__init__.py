"""Pipelines that keep running: what is wanted of each, a supervisor that sees to it, and the process that runs one."""
