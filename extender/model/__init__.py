"""The values of the cluster: pods, gangs, queues, nodes. No clock, no threads, no I/O."""
