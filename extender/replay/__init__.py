"""Recordings of cycles, and their replay."""
