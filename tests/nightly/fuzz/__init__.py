"""Strangers' bytes at every edge: made by chance from a seed, judged by what must always hold."""
