"""Who is asked to leave, and when: pure deciding, ports out."""
