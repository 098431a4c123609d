"""The `gang-extender` command: one file per word."""
