"""What should happen? Pure functions from a snapshot to a plan."""
