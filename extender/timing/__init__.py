"""When, and how soon again? The clock, pauses that grow, a pace nobody exceeds."""
