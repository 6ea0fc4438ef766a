"""How far groups have read: commits, within transactions and without, and when they are forgotten."""
