"""How answers look: columns that lose nothing at any width, and documents that stay the same."""
