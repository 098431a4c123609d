"""Fault injection: an independent observer, its record, and the verdict on the record."""
