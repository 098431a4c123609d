"""The plugins of a policy."""
