"""Decoders: from the JSON of Kubernetes objects, in every dialect, to the model."""
