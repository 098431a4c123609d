"""A simulated cluster in virtual time, with the extender behind its own ports."""
