"""What to tell whom, and when."""
