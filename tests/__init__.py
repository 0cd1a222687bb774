"""The tests: one file per module of the package, and what they share."""
