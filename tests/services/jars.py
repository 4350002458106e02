"""The jars of the servers that come from Maven: fetched once, kept in the user's cache.

``NAME.pom.xml`` beside this file tells what a server needs. Its digest is in the name of the folder, so that a
changed file fetches anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.services.server import need

POMS = Path(__file__).parent
FETCH_SECS_MAX = 600


def cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "sparkbolt"


def jars(name: str) -> Path:
    """The folder with all jars that ``NAME.pom.xml`` names; fetched by Maven when it is not there."""
    pom = POMS / f"{name}.pom.xml"
    folder = cache() / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(pom, folder)
    return folder


def _fetch(pom: Path, folder: Path) -> None:
    work = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        shutil.copy(pom, work / "pom.xml")
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        command = [need("mvn", "maven"), "-B", "-q", goal, "-DoutputDirectory=jars", "-DincludeScope=runtime"]
        run = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=FETCH_SECS_MAX)
        if run.returncode != 0:
            raise RuntimeError(
                f"Maven could not fetch what {pom.name} names:\n{run.stdout[-3000:]}{run.stderr[-3000:]}"
            )
        (work / "jars").rename(folder)
    finally:
        shutil.rmtree(work)


def java() -> str:
    """The Java that runs them: ``JAVA_HOME``'s, or the one on the path."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else need("java", "openjdk-17-jre-headless")
