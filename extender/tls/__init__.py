"""Certificates of the two ports and of their clients, and the hook secret."""
