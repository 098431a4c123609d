"""Start estimates: declared or learnt durations, and the planner run on future snapshots."""
