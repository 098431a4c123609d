"""Requests that change objects: bindings, evictions, status, events, wake-ups, leases."""
