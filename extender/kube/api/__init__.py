"""The way to the API server: connections, credentials, pace."""
