"""Kept while the code moves to the smaller house: the same behaviour, the old and the new names."""
