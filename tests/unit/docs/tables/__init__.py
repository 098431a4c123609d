"""The tables of the manual, written from the code that they speak of, by `__main__`."""
