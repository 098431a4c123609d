"""Checks for known misconfigurations of kube-scheduler, of the cluster and of the extender."""
