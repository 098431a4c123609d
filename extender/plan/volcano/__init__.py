"""Volcano's ways, where they differ from ours; `compatibility: volcano` chooses them."""
