"""``python -m sparkbolt`` is ``sparkbolt``."""

import sys

from sparkbolt.cli import main

if __name__ == "__main__":
    sys.exit(main())
