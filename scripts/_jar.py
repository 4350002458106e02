"""Compiles what Sparkbolt has for Java, with the compiler that Spark brings, into the jar beside the sources."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from sparkbolt.spark.java_classes import JAR, SOURCES

TARGET = 8
"""The version of Java that the classes are for: any that runs Spark has it."""
LONG_AGO = (1980, 1, 1, 0, 0, 0)


def compiled(jvm: Any) -> bytes:
    """The jar; the same sources give the same bytes."""
    classes = {}
    for source in SOURCES:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setTargetVersion(TARGET)
        compiler.cook(source.read_text())
        classes.update(compiler.getBytecodes())
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as jar:
        for name, content in sorted(classes.items()):
            jar.writestr(zipfile.ZipInfo(f"{name.replace('.', '/')}.class", LONG_AGO), bytes(content))
    return data.getvalue()


if __name__ == "__main__":
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway(SparkConf())  # type: ignore[no-untyped-call]
    JAR.write_bytes(compiled(gateway.jvm))
    print(JAR)
    gateway.shutdown()
