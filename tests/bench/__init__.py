"""The budgets, measured: ratios side by side in one run, never as timed tests."""
