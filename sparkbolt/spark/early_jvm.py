"""Early JVM: Spark's JVM starts while this process still imports a user's module.

Which question it answers: what may be started before anybody has asked for a session, and when is it of no use?
Rule 1: nothing waits for it, and no error comes from it: who makes a session meets it there, or starts another JVM.
Rule 2: it is used only by who asks for the same master and settings, with the same variables in the environment: a
module may set some for Spark when it is imported. Otherwise it ends.

Source: PySpark's ``launch_gateway``, which starts a JVM and waits for it, or finds one by two environment variables.
Read before: ``jvm``.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from sparkbolt.spark.jvm import jvm_output, leave_to_this_process

GATEWAY_ENV = "PYSPARK_GATEWAY_PORT"
"""Set by ``spark-submit``, which starts the JVM before the program."""
_SECRET_ENV = "PYSPARK_GATEWAY_SECRET"
_INFO_ENV = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_OF_SPARK = ("SPARK", "PYSPARK", "JAVA", "JDK", "HADOOP", "YARN", "PATH", "PYTHONPATH", "LD_")
"""How the names of variables begin on which a JVM of Spark depends."""
POLL_SECS = 0.02


class EarlyJvm:
    """A JVM that has been started, and that nobody is connected to."""

    def __init__(self, settings: Sequence[tuple[str, str]], variables: Mapping[str, str]) -> None:
        """Start it; returns at once.

        Args:
            settings: those of Spark, as (name, value).
            variables: its environment.
        """
        self._environment = environment_of_spark()
        self._folder = tempfile.mkdtemp()  # not this process's own one: without it a JVM without a driver would not end
        self._info = os.path.join(self._folder, "gateway")
        options = [part for key, value in settings for part in ("--conf", f"{key}={value}")]
        asked = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self._process = subprocess.Popen(
            [os.path.join(_find_spark_home(), "bin/spark-submit"), *options, *asked],
            stdin=subprocess.PIPE,  # it ends when this pipe is closed
            env={**variables, "SPARK_CONNECT_MODE": "0", _INFO_ENV: self._info},
            **jvm_output().popen_arguments(),
        )
        assert self._process.stdin is not None
        leave_to_this_process(self._process.stdin)
        atexit.register(self.end)

    @property
    def is_current(self) -> bool:
        """Whether it would be started in the same environment now."""
        return self._environment == environment_of_spark()

    def gateway(self) -> Any:
        """Wait until it is ready, and connect to it.

        Raises:
            PySparkRuntimeError: it has ended, as ``launch_gateway`` says it.
        """
        while self._process.poll() is None and not os.path.exists(self._info):
            time.sleep(POLL_SECS)
        if not os.path.exists(self._info):
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        atexit.unregister(self.end)
        data = Path(self._info).read_bytes()  # two numbers of 4 bytes: the port and the secret's length; the secret
        found = {GATEWAY_ENV: str(int.from_bytes(data[:4], "big")), _SECRET_ENV: data[8:].decode()}
        shutil.rmtree(self._folder, ignore_errors=True)
        os.environ.update(found)
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            for name in found:
                del os.environ[name]
        gateway.proc = self._process
        return gateway

    def end(self) -> None:
        """End it, since it is of no use."""
        atexit.unregister(self.end)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def environment_of_spark() -> dict[str, str]:
    """The variables on which a JVM of Spark depends."""
    return {name: value for name, value in os.environ.items() if name.startswith(_OF_SPARK)}
