"""Session: Java, Spark's settings, and error messages that explain what to do.

Settings on which the guarantees depend are set here and checked, also in a session that the user has made.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from sparkbolt.base.locations import scheme_of
from sparkbolt.errors import EngineError
from sparkbolt.spark.class_archive import ClassArchive, archive_for
from sparkbolt.spark.code_shipping import add, own_archive
from sparkbolt.spark.found_sources import spare_the_search
from sparkbolt.spark.jvm import jvm_output, keep_log
from sparkbolt.spark.location_checks import check_master
from sparkbolt.spark.ml_functions import session_without
from sparkbolt.spark.versions import STATE_PROVIDER, check_version

log = logging.getLogger("sparkbolt")
JAVA_VERSION_MIN = 17
TASK_FAILURES_MAX = 4
TASK_FAILURES_MIN = 2
"""Without a second attempt of a spark_task, the tuple that killed the worker cannot be found."""
EXECUTORS_WAIT_SECS = 60.0
EXECUTORS_STEADY_SECS = 3.0
JVM_IS_GONE = (
    "Spark's JVM has died, and this process cannot have another one: start the topology again with the same "
    "checkpoint, in a new process"
)
SESSION_IS_STOPPED = (
    "the Spark session was stopped, and a session that was stopped does not come back: start the topology again with "
    "the same checkpoint, in another session"
)
GATEWAY_ENV = "PYSPARK_GATEWAY_PORT"
"""Set by ``spark-submit``, which starts the JVM before the program."""
STANDALONE = "spark://"
LOCAL_CLUSTER = "local-cluster"
CONNECT = "pyspark.sql.connect."
"""Where the sessions of Spark Connect are defined."""
NEEDS_THE_DRIVER = (
    "a topology needs the process in which Spark's driver runs, since its spouts and its ledger live there; make the "
    "session there, without SPARK_REMOTE and remote(...) (on Databricks: on a cluster with dedicated access, and not "
    "on serverless or shared compute)"
)
PYTHONPATH = "spark.executorEnv.PYTHONPATH"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
START_HOOK = str(Path(__file__).parent / "start_hook")
"""The directory that makes Spark's Python processes on this machine start faster."""
MALLOC_KEPT_BYTES = 256 << 20
"""How much freed memory a Python worker may keep for its next micro-batch."""

SQL_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": STATE_PROVIDER,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A start replays the changes since the last snapshot: with this interval mostly those of a few seconds.
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # A driver that dies, or has a full disk, during its first write leaves a hidden file there, which does not count.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.sql.adaptive.enabled": "false",
    # Spark keeps one daemon and its idle workers for each set of environment variables. By default this setting makes
    # the variables of the levels differ from those of the source: there would be two daemons and twice the workers.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Rows are frames of half a megabyte. The JVM copies a batch to grow it, and allocates a large one from
    # the kernel each time; a limit on the number of rows alone would allow more than Arrow's offsets can count.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(1 << 20),
}
"""The settings of every query; they are set on a separate session, so that the user's session is not changed."""

_CORE_SETTINGS = {
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.driver.memory": "2g",
    # A micro-batch allocates and frees tens of megabytes; new pages from the kernel each time cost 10 % of its time.
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(MALLOC_KEPT_BYTES),
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(MALLOC_KEPT_BYTES),
    "spark.driver.maxResultSize": "0",
}
_DAEMON = {"spark.python.daemon.module": "sparkbolt.spark.daemon"}
"""Set where the daemon can import Sparkbolt before files were added: under a local master, on a standalone cluster."""
LOCAL_SETTINGS = {
    # Most time is spent in Python. Java's second compiler would take a third of two cores in the first minute, for code
    # that mostly copies bytes; and the default garbage collector is slow with rows of a megabyte.
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
    "spark.shuffle.compress": "false",
    # Otherwise one thread reads each frame twice more, to diagnose the kind of a disk error.
    "spark.shuffle.checksum.enabled": "false",
    # Where there are few destinations Spark by default writes a file for each, and then all of them into another.
    "spark.shuffle.sort.bypassMergeThreshold": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""For a local master only: executors on other machines could not reach the driver on its loopback address."""


def java_path() -> str | None:
    """The path of the program ``java`` that Spark will start; None if none is known."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java")


def check_java() -> None:
    """Refuse to start without a Java that Spark supports.

    Raises:
        EngineError: there is no Java, or it is too old.
    """
    home, java = os.environ.get("JAVA_HOME"), java_path()
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
        raise EngineError(
            f"Spark needs Java {JAVA_VERSION_MIN} or later, and {where}: install it (on Debian and Ubuntu: "
            "apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if match is None or int(match[1]) < JAVA_VERSION_MIN:
        found = match[1] if match else said.strip().split("\n", 1)[0]
        raise EngineError(
            f"Spark needs Java {JAVA_VERSION_MIN} or later, and {java} is Java {found}: install a newer one "
            "(on Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
        )


def make_session(name: str, master: str | None = None, settings: dict[str, str] | None = None) -> SparkSession:
    """The session for the topology: the active one of this process, or a new one.

    Args:
        name: the application's name, if a new session is made.
        master: as for ``spark-submit``, by default ``local[*]``. ``local[N]`` without a number of failures gets four.
        settings: further settings of a new session.

    Raises:
        EngineError: Java is missing or too old, Spark does not start, or with the active session's master or settings
            tuples could be lost.
    """
    active = running_session()
    if active is not None:
        return given_session(active, "a Spark session is active", master, settings)
    given = {}
    if GATEWAY_ENV in os.environ:
        given = _submitted()
    else:
        check_java()
    chosen = settings or {}
    os.environ.setdefault("PYSPARK_PYTHON", chosen.get("spark.pyspark.python", sys.executable))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = retrying(master or given.get("spark.master") or "local[*]")
    check_master(master)
    known = {**given, **chosen}
    with _signals_kept():
        session = _new_session(name, master, {**_CORE_SETTINGS, **_settings_of(master, known), **known})
    _check_core(session)
    return session


def running_session() -> SparkSession | None:
    """A session of the Spark that this process has; None if it has none.

    ``getActiveSession`` alone does not find it in every thread.
    """
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def given_session(
    session: SparkSession, which: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Check a session that Sparkbolt has not made, and return it.

    Args:
        session: the session.
        which: how error messages describe the session.
        master: the master that the user has requested besides.
        settings: the settings that the user has requested besides.

    Raises:
        EngineError: the session has another master or another value of a setting, or with its settings tuples could be
            lost.
    """
    _refuse_connect(session)
    has = str(session.sparkContext.master)
    if master is not None and retrying(master) != has:
        raise EngineError(
            f"{which}, whose master is {has!r}, and master={master!r} was given: a process has one Spark. Leave master "
            "away, or stop that session first"
        )
    for key, value in (settings or {}).items():
        own = session.conf.get(key, None)
        if own != value:
            raise EngineError(
                f"{which}, where {key} is {own!r}, and {value!r} was given for it: a session keeps "
                "what it was made with. Make it with that setting, or stop it first"
            )
    _check_core(session)
    return session


def _leave_to_this_process(descriptor: int) -> None:
    """Close the JVM's standard input in processes that this one forks (``multiprocessing``).

    The JVM ends when no process holds this pipe open. Otherwise the JVM, and its lock on the checkpoint, would live as
    long as the forked processes.

    Args:
        descriptor: the driver's end of the pipe.
    """

    def let_go() -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)

    os.register_at_fork(after_in_child=let_go)


def _submitted() -> dict[str, str]:
    """The settings of ``spark-submit``, which has started this program and its JVM."""
    if SparkContext._gateway is None:
        SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _new_session(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    """Start the JVM, if this process has none, and a session in it."""
    configuration = SparkConf().setAppName(name).setAll(list(settings.items())).setMaster(master)
    try:
        if SparkContext._active_spark_context is None:
            gateway = SparkContext._gateway  # of a context that was stopped: a process has at most one JVM
            if gateway is None:
                configuration.setAll(_archived(configuration, master))
                with _start_hook(master), _jvm_ends_with_its_start():
                    gateway = launch_gateway(configuration, jvm_output().popen_arguments())  # type: ignore[no-untyped-call]
                _leave_to_this_process(gateway.proc.stdin.fileno())
            context = SparkContext(conf=configuration, gateway=gateway)
            context.setLogLevel("WARN")
            _keep_to_the_log(context)
            if master.startswith(STANDALONE):
                add(context, own_archive())  # before any task, since the Python daemon imports it
            session_without(context)
            spare_the_search(context)
        return SparkSession.builder.config(conf=configuration).getOrCreate()
    except Exception as error:  # noqa: BLE001  any error of Spark becomes one sentence
        java = getattr(error, "java_exception", None)
        kept = keep_log()
        said = str(java.getMessage() if java is not None else error).strip().split("\n", 1)[0]
        if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
            said = (what_java_said(kept) if kept else None) or "Java ended before it could be used"
        elif isinstance(error, OSError | Py4JNetworkError):
            said = f"the JVM has ended, or does not answer ({said})"
        where = f"; Spark's log is {kept}" if kept else ""
        raise EngineError(f"Spark does not start with master {master!r}: {said}{where}") from None


def own_class_archive() -> ClassArchive | None:
    """The class archive for the JVM that this process would start; None if there can be none."""
    return archive_for(java_path(), _find_spark_home())


def _archived(configuration: SparkConf, master: str) -> list[tuple[str, str]]:
    """The settings by which a JVM under a local master uses the class archive; if there is none, it will be made."""
    options = configuration.get(JAVA_OPTIONS, None)
    if not is_local_master(master) or options != LOCAL_SETTINGS[JAVA_OPTIONS]:
        return []
    archive = own_class_archive()
    if archive is None:
        return []
    option = archive.option()
    if option is None:
        archive.begin_later()
        return []
    return [(JAVA_OPTIONS, f"{options} {option}")]


@contextmanager
def _start_hook(master: str) -> Iterator[None]:
    """Have the JVM of a local master give the start hook to each Python process, also to those of no executor."""
    if not is_local_master(master):
        yield
        return
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([START_HOOK, *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before


@contextmanager
def _jvm_ends_with_its_start() -> Iterator[None]:
    """Kill the JVM if its start is interrupted, for example by Ctrl-C.

    PySpark then removes the folder for the file with the JVM's port. A JVM that cannot write this file neither
    ends nor reads the pipe that signals the end of this process.
    """
    begun: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen(*arguments, **options))
        return begun[-1]

    pyspark: Any = java_gateway  # PySpark does not export the name
    before, pyspark.Popen = pyspark.Popen, begin
    try:
        yield
    except BaseException:
        for process in begun:
            with process:
                process.kill()
        raise
    finally:
        pyspark.Popen = before


def _keep_to_the_log(context: SparkContext) -> None:
    """Send errors of PySpark's accumulator connection to the log.

    If a job is cancelled, this connection may break, and PySpark would print a traceback beside the sentence about
    the end of the run. No data is lost.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: log.debug("PySpark's line for accumulators was cut", exc_info=True)


def what_java_said(path: str) -> str | None:
    """The first line of a log that names an error; None if there is none."""
    try:
        lines = Path(path).read_text(errors="replace").split("\n")
    except OSError:
        return None
    named = (line for line in lines if re.search(r"\b(Exception in thread|\w*Exception:|Error:|error:)", line))
    return next((re.sub(r'^Exception in thread "[^"]*" ', "", line).strip() for line in named), None)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the handler of Ctrl-C: PySpark's own one cancels all jobs, also those of the running topology."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:  # None means a handler that was not set from Python
            signal.signal(signal.SIGINT, before)


def retrying(master: str) -> str:
    """The name of a master; a local one is extended so that a failed spark_task is retried, as on a cluster.

    >>> retrying("local[2]"), retrying("local"), retrying("local[2,8]"), retrying("spark://host:7077")
    ('local[2,4]', 'local[1,4]', 'local[2,8]', 'spark://host:7077')
    """
    match = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{match[1] or 1},{TASK_FAILURES_MAX}]" if match else master


def is_local_master(master: str) -> bool:
    """Whether a master is local: then executors are on the driver's machine."""
    return master.startswith("local")


def is_local(session: SparkSession) -> bool:
    """Whether the master of a session is local."""
    return is_local_master(str(session.sparkContext.master))


def is_one_process(session: SparkSession) -> bool:
    """Whether executors are threads of the driver's JVM, and not processes of its machine (``local-cluster``)."""
    return is_local(session) and not str(session.sparkContext.master).startswith(LOCAL_CLUSTER)


def jvm_lives(session: SparkSession) -> bool:
    """Whether the driver's JVM answers."""
    try:
        session.sparkContext._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]
    except Exception:  # noqa: BLE001  py4j raises any error of its socket
        return False
    return True


def why_gone(session: SparkSession) -> str | None:
    """Why a session cannot be used any more, in a sentence; None if it can."""
    if not jvm_lives(session):
        return JVM_IS_GONE
    java = session.sparkContext._jsc
    try:
        return SESSION_IS_STOPPED if java is None or java.sc().isStopped() else None
    except (Py4JError, OSError):
        return JVM_IS_GONE


def check_usable(session: SparkSession) -> None:
    """Refuse a session that cannot be used any more.

    Raises:
        EngineError: its JVM has died, or it was stopped, or it is one of Spark Connect.
    """
    _refuse_connect(session)
    gone = why_gone(session)
    if gone is not None:
        raise EngineError(gone)


def _refuse_connect(session: SparkSession) -> None:
    if type(session).__module__.startswith(CONNECT):
        raise EngineError(f"the Spark session is one of Spark Connect: {NEEDS_THE_DRIVER}")


def cores_of(session: SparkSession) -> int:
    """How many spark_tasks run at the same time; at least 1."""
    return max(1, session.sparkContext.defaultParallelism)


def stage_that_runs(session: SparkSession, group: str) -> tuple[int | None, tuple[int, int] | None]:
    """The stage that runs in the newest job of a group, and how many of its spark_tasks are finished.

    This is Spark's own status: it counts finished spark_tasks, and shows nothing of a running one.

    Returns:
        (number of the stage, counted from 0; (finished spark_tasks, all spark_tasks)), or (None, None) if none runs.
    """
    tracker = session.sparkContext.statusTracker()
    job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(group), default=-1))
    if job is None:
        return None, None
    for level, number in enumerate(sorted(job.stageIds)):
        stage = tracker.getStageInfo(number)
        if stage is not None and stage.numActiveTasks:
            return level, (stage.numCompletedTasks, stage.numTasks)
    return None, None


def for_lane(session: SparkSession, spark_partitions: int) -> SparkSession:
    """A separate session for one topology, with the settings that its query needs."""
    own = session.newSession()
    for key, value in SQL_SETTINGS.items():
        own.conf.set(key, value)
    own.conf.set("spark.sql.shuffle.partitions", str(spark_partitions))
    return own


def _settings_of(master: str, known: Mapping[str, str]) -> dict[str, str]:
    """The settings that depend on the kind of master.

    Executors on this machine use the driver's module search path, and print to its terminal. Those of a standalone
    cluster find Sparkbolt in their working directory, where Spark puts added files. YARN and Kubernetes set their own
    Python path, which is not changed: workers there import modules after the fork.
    """
    if is_local_master(master):
        path = [START_HOOK, *(entry or os.getcwd() for entry in sys.path)]
        return {**LOCAL_SETTINGS, **_DAEMON, PYTHONPATH: os.pathsep.join(path), **jvm_output().environment()}
    if master.startswith(STANDALONE) and PYTHONPATH not in known:
        return {**_DAEMON, PYTHONPATH: os.path.basename(own_archive())}
    return {}


def check_reachable(session: SparkSession, checkpoint: str | None) -> None:
    """Refuse a checkpoint that executors on other machines cannot reach.

    Raises:
        EngineError: the master is a cluster, and the checkpoint is missing or has no URL scheme.
    """
    if is_local(session) or (checkpoint is not None and scheme_of(checkpoint) is not None):
        return
    what = "there is no checkpoint" if checkpoint is None else f"checkpoint {checkpoint!r} is a local directory"
    raise EngineError(
        f"{what}, and the topology runs on the cluster {session.sparkContext.master}: give checkpoint=... a directory "
        "that every executor reaches, such as hdfs://... or file:///a/shared/mount"
    )


def await_executors(session: SparkSession, timeout_secs: float = EXECUTORS_WAIT_SECS) -> None:
    """Wait until the executors of a cluster have started, since a new topology is laid out for their cores.

    The wait ends when ``spark.cores.max`` is reached, or when no further executor has appeared for
    ``EXECUTORS_STEADY_SECS``. With dynamic allocation there may be no executors until there is work, so there is no
    wait.

    Raises:
        EngineError: there is no executor after ``timeout_secs``.
    """
    configuration = session.sparkContext.getConf()
    if is_local(session) or configuration.get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    wanted = int(configuration.get("spark.cores.max", "0") or 0)
    scala: Any = session.sparkContext._jsc.sc()  # pyspark has no public API for the list of executors
    until = time.monotonic() + timeout_secs
    count, since = 0, time.monotonic()
    while count == 0 or time.monotonic() - since < EXECUTORS_STEADY_SECS:
        found = scala.getExecutorMemoryStatus().size() - 1  # one is the driver
        if found and wanted and cores_of(session) >= wanted:
            return
        if found != count:
            count, since = found, time.monotonic()
        if not count and time.monotonic() > until:
            raise EngineError(
                f"the cluster {session.sparkContext.master} has given no executor within {timeout_secs:.0f} s: its "
                "cores may be in use by others, or its machines cannot reach this driver (spark.driver.host)"
            )
        time.sleep(0.1)


def _check_core(session: SparkSession) -> None:
    check_version(session.version, "the Spark of the session")
    configuration = session.sparkContext.getConf()
    if configuration.get("spark.speculation", "false") == "true":
        raise EngineError(
            "spark.speculation is on: two attempts of one spark_task would run user code at the same time. "
            "Start Spark with spark.speculation=false"
        )
    master = str(session.sparkContext.master)
    tries = failures_of(master, configuration.get("spark.task.maxFailures"))
    if tries is not None and tries < TASK_FAILURES_MIN:
        cure = "spark.task.maxFailures=4" if not master.startswith("local") else f"master {retrying(master)!r}"
        raise EngineError(
            f"the Spark session has master {master!r}, where a spark_task is tried {tries} time(s): one tuple that "
            f"kills its Python worker would end the query, and each one after it. Make the session with {cure}"
        )


def failures_of(master: str, setting: str | None = None) -> int | None:
    """How often a spark_task is tried; None if that cannot be known.

    Args:
        master: the master's name.
        setting: the value of ``spark.task.maxFailures``, if it is set.

    >>> failures_of("local[2]"), failures_of("local[*,4]"), failures_of("local"), failures_of("spark://host:7077")
    (1, 4, 1, 4)
    """
    if master == "local":
        return 1
    local = re.fullmatch(r"local\[(?:\*|\d+)(?:,\s*(\d+))?\]", master)
    if local:
        return int(local[1] or 1)
    cluster = re.fullmatch(r"local-cluster\[.*\]", master)
    return int(setting or TASK_FAILURES_MAX) if cluster or not master.startswith("local") else None
