"""Capacity that is reserved for gangs, and its release."""
