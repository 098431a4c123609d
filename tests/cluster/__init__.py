"""Tests on a real control plane, which runs as plain processes on loopback.

`python -m tests.cluster build` builds the binaries, `python -m tests.cluster up` runs a cluster.
"""
