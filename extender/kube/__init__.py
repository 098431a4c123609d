"""The real cluster: watches, reads and writes. The only package that talks to the API server."""
