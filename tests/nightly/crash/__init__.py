"""Every call between us and the others, spoilt in every way: scenes, lanes, the walk, its table."""
