"""List and follow what the plan depends on."""
