"""State that comes back from changelogs and checkpoints."""
