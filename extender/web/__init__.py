"""How are we asked? The hooks of kube-scheduler, the probes and the pages."""
