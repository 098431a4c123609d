"""Who may leave, and who should."""
