"""Pictures for notebooks: `odradek.show`."""
