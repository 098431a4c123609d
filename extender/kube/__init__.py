"""How do we listen and act? The only package that talks to the API server."""
