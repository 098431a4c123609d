"""The operations port: probes, metrics, the API and the dashboard."""
