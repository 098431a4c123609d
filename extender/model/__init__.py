"""What exists? Values without behaviour of their own: no clock, no threads, no I/O."""
