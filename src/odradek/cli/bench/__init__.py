"""`odradek bench`: what a cluster can do with this client, measured from this machine."""
