"""The outside world as arguments: `ports` declares what the broker needs, `real` provides it on POSIX."""
