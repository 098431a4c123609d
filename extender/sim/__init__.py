"""How would it go? An embedded cluster behind the same ports and the same HTTP hooks."""
