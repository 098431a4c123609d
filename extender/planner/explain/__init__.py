"""Explains why a gang waits and which changes would let it start."""
