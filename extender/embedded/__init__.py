"""The whole extender on a simulated cluster, in one process, behind real HTTP."""
