"""The other versions of Spark: each in a virtual environment of its own, which ``scripts/test versions`` makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.patience import PATIENCE_SECS

ROOT = Path(__file__).parents[2]


def python_of(version: str) -> str:
    """The Python that has this version of Spark, such as "4.2"."""
    python = ROOT / ".versions" / f"spark-{version}" / "bin" / "python"
    assert python.exists(), f"there is no {python}: scripts/test versions makes it"
    return str(python)


def run(python: str, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests as a program, to its end or to its kill."""
    return subprocess.run(
        [python, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECS, check=False
    )
