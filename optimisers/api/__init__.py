"""What the user calls: `optimisers/__init__.py` lists it."""
