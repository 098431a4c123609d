"""What is asked of a running extender: by which names, and what it answers."""
