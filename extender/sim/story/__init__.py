"""The story of the demo: acts that are told on an embedded cluster, each with claims it checks."""
