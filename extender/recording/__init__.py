"""What was seen and decided, kept on disk so that it can be planned again."""
