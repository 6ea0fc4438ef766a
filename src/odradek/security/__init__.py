"""Who may do how much. No I/O."""
