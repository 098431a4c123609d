"""Finds the running pods to evict so that a gang can start."""
