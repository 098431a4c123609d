"""Raw objects to ours, in every dialect."""
