"""The pages of the operations port: what people look at, written by Flask, kept fresh by events."""
