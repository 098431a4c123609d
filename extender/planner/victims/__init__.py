"""Which running pods leave so that a gang can start."""
