"""Do we lead? A term, whose lease gives it, and who is told when it begins and ends."""
