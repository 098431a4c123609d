"""What a queue deserves and what it may use."""
