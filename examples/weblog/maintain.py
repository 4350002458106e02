"""Keeps a SQLite database for itself, as a long maintenance does: nobody else can read or write it meanwhile.

python maintain.py pages.db 30
"""

from __future__ import annotations

import sqlite3
import sys
import time


def main() -> None:
    """Hold the database for so many seconds."""
    path, secs = sys.argv[1:]
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")
    print(f"{path} is in maintenance", flush=True)
    time.sleep(float(secs))
    database.execute("COMMIT")
    database.close()


if __name__ == "__main__":
    main()
