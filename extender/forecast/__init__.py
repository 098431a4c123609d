"""When will it run? Durations that were said or learnt, and the planner run ahead of time."""
