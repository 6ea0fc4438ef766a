"""How the store of an archive is reached, and the values that all formats share."""
