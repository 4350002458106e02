"""Java classes: loads Sparkbolt's classes into a running JVM.

If a JVM cannot load them, the caller works without them.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

log = logging.getLogger("sparkbolt")

SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))
JAR = Path(__file__).parent / "java" / "sparkbolt-jvm.jar"
"""``scripts/jar`` makes it from the sources."""


def java_class(jvm: Any, name: str) -> Any:
    """The class of that name, a ``java.lang.Class``; None if this JVM cannot have it, which is noted in the log."""
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.addURL(jvm.java.io.File(str(JAR)).toURI().toURL())
        return jvm.java.lang.Class.forName(name, True, loader)
    except (Py4JError, TypeError) as error:  # a loader without addURL, on which py4j raises a TypeError
        log.debug("the JVM has no class %s: %s", name, error)
        return None
