"""What was begun and not finished."""
