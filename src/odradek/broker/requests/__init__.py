"""The way of a request from its frame to its handler, and of the answer back."""
