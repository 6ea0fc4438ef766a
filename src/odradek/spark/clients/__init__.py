"""Clients that stay open from task to task, and how a program finds its brokers."""
