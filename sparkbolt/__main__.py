"""``python -m sparkbolt`` is ``sparkbolt``."""

import sys

from sparkbolt.faces.cli import main

if __name__ == "__main__":
    sys.exit(main())
