"""How soon again? Pauses that grow, and a pace nobody exceeds."""
