"""A cache of the cluster: changes go in, snapshots and single facts come out."""
