"""Who asks us? A record of the kube-scheduler behind every scheduler name we serve."""
