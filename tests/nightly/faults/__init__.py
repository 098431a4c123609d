"""Faults made on purpose, what was seen from outside meanwhile, and the verdict on it."""
