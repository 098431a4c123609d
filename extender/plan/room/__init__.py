"""Room while planning: who would be where, how many more fit, trials that undo themselves."""
