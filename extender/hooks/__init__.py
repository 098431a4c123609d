"""The hooks that kube-scheduler calls: filter, prioritize, preempt and bind."""
