"""A real control plane as plain processes on loopback, and the tests that need one.

`python -m tests.cluster build` makes the binaries ahead of time, `python -m tests.cluster up`
runs a cluster to play with.
"""
