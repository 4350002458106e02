"""Apache Storm: its word count, and how long a line takes there until it is acked.

How many words a second does Storm count on this machine, and how soon is a line complete?

Maven fetches Storm's jars into ``.bench/storm`` at the first call, and javac compiles ``StormWords.java``; both are
done anew only if the files in ``peer_programs`` have changed. Each run is a JVM of its own, with a ``LocalCluster`` of
one worker: spout, bolts and ackers are threads of one process and send one another objects, not bytes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.text import CACHE, zipf_text

PROGRAMS = Path(__file__).parent / "peer_programs"
POM = PROGRAMS / "storm.pom.xml"
PROGRAM = PROGRAMS / "StormWords.java"
PYTHON_BOLTS = {"python": sys.executable, "program": str(PROGRAMS / "storm_bolts.py")}
"""Settings with which split and count are Python programs behind ``ShellBolt``."""
JVM = ("-Xmx2g", "-XX:+UseParallelGC")
GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
START_SECS_MAX = 240
"""How long a run may take beside the seconds that it measures: start, warming up, and the last tuples."""
FETCH_SECS_MAX = 600
LATENCY_WORDS = 2_000_000

Lines = Sequence[Sequence[str]]
"""What a program printed: its lines, each in its parts."""


def words(directory: Path, secs: int, settings: Mapping[str, object]) -> Lines:
    """Count the words of a directory's files for so many seconds.

    Args:
        directory: of text files; an executor of the spout reads its share of them, over and over.
        secs: how long, from the first line that is emitted.
        settings: executors by component (``lines``, ``split``, ``count``, ``ackers``), ``PYTHON_BOLTS``, and settings
            of Storm by their own names. With ``ackers=0`` lines have no message ids.

    Returns:
        lines ``mark SECONDS WORDS`` and at the end ``ended WORDS_EMITTED WORDS_COUNTED LINES_FAILED``.

    Raises:
        RuntimeError: Storm is not to be had, or the run failed.
    """
    return run("words", [directory, secs], settings, secs)


def latency(rate: int, secs: int, settings: Mapping[str, object] | None = None) -> dict[str, float]:
    """Storm's complete latency at so many lines a second, each with a message id, of ten words.

    Lines of the first ten seconds, in which the JVM compiles, are not in the figures.

    Args:
        rate: lines a second.
        secs: how long it is measured; the run takes about 25 seconds more.
        settings: as for ``words``.

    Returns:
        milliseconds from the emit of a line to the ack at its spout (``p50``, ``p99``, ``p99.9``, ``max``); the same
        from the moment at which it was due (``due_p50`` and so on), which is more if the spout cannot keep the pace;
        how many lines were ``acked`` and ``failed``.

    Raises:
        RuntimeError: Storm is not to be had, or the run failed.
    """
    text = zipf_text(LATENCY_WORDS)
    with tempfile.TemporaryDirectory(prefix="storm-text-") as directory:
        (Path(directory) / text.path.name).symlink_to(text.path)
        said = run("latency", [directory, rate, secs], settings or {}, secs)
    found = {line[0]: [float(part) for part in line[1:]] for line in said}
    shares = ("p50", "p99", "p99.9", "max")
    acked, failed = found["ended"]
    return {
        **dict(zip(shares, found["latency"], strict=True)),
        **dict(zip((f"due_{share}" for share in shares), found["since_due"], strict=True)),
        "acked": acked,
        "failed": failed,
    }


def run(mode: str, positional: Sequence[object], settings: Mapping[str, object], secs: int) -> Lines:
    """Run ``StormWords`` once, for so many seconds beside its start; what it printed."""
    classes = f"{compiled()}{os.pathsep}{jars()}/*"
    given = [str(value) for value in positional] + [f"{name}={value}" for name, value in settings.items()]
    with tempfile.TemporaryDirectory(prefix="storm-", ignore_cleanup_errors=True) as directory:
        log = f"-Dlog4j2.configurationFile={PROGRAMS / 'storm.log4j2.xml'}"
        options = [*JVM, log, f"-Djava.io.tmpdir={directory}"]
        command = [tool("java"), *options, "-cp", classes, PROGRAM.stem, mode, *given]
        return [line.split() for line in _called(command, Path(directory), START_SECS_MAX + secs).splitlines()]


def version() -> str:
    """The version of Storm, by its jar."""
    (jar,) = jars().glob("storm-server-*.jar")
    return jar.stem.removeprefix("storm-server-")


def jars() -> Path:
    """The folder with the jars that ``storm.pom.xml`` names; fetched at the first call."""
    folder = _folder("jars", POM)
    if not folder.exists():
        unfinished = _unfinished(folder)
        shutil.copy(POM, unfinished / "pom.xml")
        command = [tool("mvn"), "-B", "-q", GOAL, "-DoutputDirectory=jars", "-DincludeScope=runtime"]
        _called(command, unfinished, FETCH_SECS_MAX)
        (unfinished / "jars").rename(folder)
        shutil.rmtree(unfinished)
    return folder


def compiled() -> Path:
    """The folder with the classes of ``StormWords.java``; compiled at the first call."""
    folder = _folder("classes", POM, PROGRAM)
    if not folder.exists():
        unfinished = _unfinished(folder)
        command = [tool("javac"), "-proc:none", "-cp", f"{jars()}/*", "-d", str(unfinished), str(PROGRAM)]
        _called(command, unfinished, FETCH_SECS_MAX)
        unfinished.rename(folder)
    return folder


def tool(name: str) -> str:
    """The path of ``java``, ``javac`` or ``mvn``.

    Raises:
        RuntimeError: it is not on this machine.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else None
    found = found or shutil.which(name)
    if found is None:
        package = {"mvn": "maven"}.get(name, "a JDK, such as openjdk-17-jdk-headless")
        raise RuntimeError(f"there is no {name} on this machine, which Storm's word count needs; install {package}")
    return found


def _folder(name: str, *sources: Path) -> Path:
    """A folder of ``.bench/storm`` with the digest of what it is made of in its name."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return CACHE / "storm" / f"{name}-{digest[:12]}"


def _unfinished(folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))


def _called(command: Sequence[str], directory: Path, secs_max: float) -> str:
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=secs_max, check=False)
    if result.returncode != 0:
        said = result.stdout[-1000:] + result.stderr[-2000:]
        raise RuntimeError(f"{' '.join(command[:1])} ended with {result.returncode}:\n{said}")
    return result.stdout
