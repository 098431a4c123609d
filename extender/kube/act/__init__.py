"""What we write: bindings, wake-ups, evictions, status, events."""
