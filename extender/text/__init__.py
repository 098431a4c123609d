"""Text of strangers: documents that cannot grow while they are read, lines that steer nothing."""
