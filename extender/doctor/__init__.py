"""Every trap we know of: in kube-scheduler's configuration, in the cluster, in what we run as."""
