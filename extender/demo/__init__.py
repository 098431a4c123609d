"""The demo: four acts on a simulated cluster, with the extender as it runs."""
