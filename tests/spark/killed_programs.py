"""Programs of the tests that kill themselves at a moment that they are told.

Each prints ``killed`` before it does, or a line of JSON at its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_SECS


def run_to(moment: str, module: str, *arguments: str) -> dict[str, Any]:
    """Run ``python -m module *arguments`` to its end, or to its kill at ``moment``; what it said at its end."""
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
        check=False,
    )
    assert ("killed" in result.stdout) == (moment != "never"), (
        f"{moment}: {result.stdout[-2000:]}{result.stderr[-4000:]}"
    )
    said: dict[str, Any] = {} if moment != "never" else json.loads(result.stdout.splitlines()[-1])
    return said
