"""`python -m optimisers`: the command line, which is the demo's."""

import sys

from optimisers.demo.cli import main

if __name__ == "__main__":
    sys.exit(main())
