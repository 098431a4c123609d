"""Binds that wait until their gang is complete."""
