"""Fuzzing of every edge that reads untrusted bytes, with random inputs from a seed."""
