"""Tests of every check of doctor, and of the facts that it collects."""
