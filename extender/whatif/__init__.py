"""What-if queries: manifests, hypothetical changes of them, and two plans of one snapshot."""
