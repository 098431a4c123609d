"""Tests of every trap, and of the looking."""
