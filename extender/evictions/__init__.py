"""Evictions: which pods are evicted and when; allows or refuses preemptions of kube-scheduler."""
