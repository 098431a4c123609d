"""Misconfiguration of queues, namespaces and permissions."""
