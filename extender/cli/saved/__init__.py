"""Objects somebody saved, instead of a cluster: reading them, and what lacks among them."""
