"""Who keeps which room for whom."""
