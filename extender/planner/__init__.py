"""Decides which gangs start, on which nodes, and which pods are evicted for them."""
