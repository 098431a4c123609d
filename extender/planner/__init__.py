"""Decides which gangs start, where, and which pods leave for them."""
