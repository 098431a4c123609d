"""A whole cluster under virtual time: objects, kube-scheduler and the extender, one thread."""
