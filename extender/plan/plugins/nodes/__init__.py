"""Plugins that judge nodes: which may be used at all, and which are best."""
