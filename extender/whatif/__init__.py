"""What would be? Objects as written, what is supposed of them, and two plans of one moment."""
