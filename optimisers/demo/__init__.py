"""The demo: a small network learns handwritten digits, steered from the command line."""
