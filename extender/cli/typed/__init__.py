"""What may be typed: names, choices and numbers, and what is said of anything else."""
