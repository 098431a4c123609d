"""A run as one page: nothing outside it is asked for, nothing in it acts."""
