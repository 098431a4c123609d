"""The looking: what a cluster, an extender and a file say, read and never written."""
