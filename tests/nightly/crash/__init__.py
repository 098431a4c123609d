"""Injects every fault at every call between the extender and its peers, in short scenes."""
