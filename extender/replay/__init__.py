"""Recordings of planning cycles, and their replay."""
