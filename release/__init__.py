"""What makes a release: the list of its parts, and the proof on every Python."""
