"""What if, on a page: what an address supposes, and who works out what would be."""
