"""The demo: four acts on a simulated cluster, with the real extender."""
