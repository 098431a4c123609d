"""The tables of the manual, which `__main__` generates from the code."""
