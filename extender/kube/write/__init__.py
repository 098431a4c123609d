"""Requests that change objects: bindings, evictions, status, leases."""
