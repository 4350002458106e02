"""Starting: the steps between ``topology.start`` and the object that the user holds.

Every refusal happens before anything is written outside the checkpoint, or started.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from pyspark.sql import SparkSession

from sparkbolt.api.running import Telemetry, TelemetrySink
from sparkbolt.api.topology import Topology
from sparkbolt.control.documents import TopologyState
from sparkbolt.control.intent import CONTROL_FILE, Intent
from sparkbolt.control.logs import current_log
from sparkbolt.control.presence import Presence
from sparkbolt.control.start_shape import StartShape, note_try, remember, shape_of_start
from sparkbolt.driver.ledger.agreement import InletSources
from sparkbolt.errors import CheckpointError, WrongUseError
from sparkbolt.spark import code_shipping, program_modules, scratch
from sparkbolt.spark.checkpoint import Checkpoint, letters_beside
from sparkbolt.spark.checkpoint_lock import refuse_if_in_use
from sparkbolt.spark.failure_text import explain
from sparkbolt.spark.hadoop_settings import forget_sources
from sparkbolt.spark.jvm import quieten_py4j
from sparkbolt.spark.local_disk import write_synced
from sparkbolt.spark.location_checks import check_directory
from sparkbolt.spark.output_ownership import OutputOwnership
from sparkbolt.spark.running_on_spark import RunningOnSpark
from sparkbolt.spark.session import (
    await_executors,
    check_reachable,
    check_usable,
    cores_of,
    for_lane,
    given_session,
    is_local,
    is_one_process,
    make_session,
)
from sparkbolt.spark.succession import begin_from, decide, refuse_undecided
from sparkbolt.spark.versions import note_version
from sparkbolt.telemetry import sink_for

log = logging.getLogger("sparkbolt")


def start(
    topology: Topology,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    master: str | None = None,
    spark: SparkSession | None = None,
    settings: dict[str, str] | None = None,
    py_files: Sequence[str] = (),
    open_secs: float | None = None,
    telemetry: Telemetry | None = None,
    apply: bool = False,
    savepoint: str | os.PathLike[str] | None = None,
    copy: str | None = None,
) -> RunningOnSpark:
    """Start a topology; does not block. Arguments, defaults and errors are those of ``Topology.start``."""
    if spark is not None:
        check_usable(spark)
    place = None if checkpoint is None else os.fspath(checkpoint)
    if place is None and (savepoint is not None or copy is not None):
        raise WrongUseError(
            "a start from a savepoint or a copy needs a checkpoint: name its directory with --checkpoint"
        )
    refuse_if_in_use(place)
    check_directory(place)
    refuse_undecided(topology, None if savepoint is None else os.fspath(savepoint), place, copy)
    files = [code_shipping.given_file(path) for path in py_files]
    quieten_py4j()
    for left in scratch.sweep():
        log.info("%s was left by a process that has died, and is removed", left)
    if spark is not None:
        session = given_session(spark, "a session was given (spark=...)", master, settings)
    else:
        session = make_session(topology.name, master, settings)
    check_usable(session)
    check_reachable(session, place)
    code_shipping.send(session.sparkContext, files, cluster=not is_local(session))
    program_modules.look()
    sink = sink_for(topology, telemetry)
    if savepoint is not None:
        begin_from(os.fspath(savepoint), place or "", lambda: session)
    temporary = scratch.make("checkpoint-") if place is None else None
    try:
        running = _running(
            topology, session, place or str(temporary), temporary, open_secs, sink, apply=apply, role=copy
        )
    except BaseException:
        if sink is not None:
            sink.close()
        if temporary is not None:
            scratch.remove(temporary)
        raise
    running.start()
    return running


def _running(
    topology: Topology,
    session: SparkSession,
    place: str,
    temporary: str | None,
    open_secs: float | None,
    telemetry: TelemetrySink | None,
    *,
    apply: bool,
    role: str | None,
) -> RunningOnSpark:
    """Lock and check the checkpoint, lay out the topology, and begin the first life."""
    try:
        held = Checkpoint(session, place, letters=None if temporary is None else letters_beside(topology.name))
    except OSError as error:
        raise CheckpointError(f"checkpoint {place} cannot be used: {explain(str(error))}") from None
    lasting = held.directory if temporary is None else None
    log_files = current_log()
    presence = Presence(
        topology.name,
        lasting,
        directory=held.directory,
        log_directory=log_files.directory if log_files is not None else None,
    )
    try:
        if role is not None:  # what is refused must not stop the topology that was copied
            _shape_of(held, topology, session, apply=apply)
        decide(held, topology, role, session)
        held.cut_back()
        note_version(held.files, session.version, f"checkpoint {held.directory}")
        if not held.generations:
            await_executors(session)
        owned = OutputOwnership(
            topology, held.identity(), held.directory, is_lasting=temporary is None, is_new=held.last_commit() < 0
        )
        owned.check()
        intent, shape = _shape_of(held, topology, session, apply=apply)
        started = shape.started
        for step in started.steps:
            log.info("checkpoint %s: %s", held.directory, step)
        for overruled in shape.overruled:
            log.info("checkpoint %s: %s", held.directory, overruled)
        remember(held.files, intent, shape)
        held.keep(started.generations)
        lane = started.lane
        own = for_lane(session, lane.spark_partitions)
        if held.is_local:
            write_synced(own, executors=not is_one_process(session))
        if is_local(session):
            forget_sources(own)
        owned.claim()
        before = shape.before(topology)
        running = RunningOnSpark(topology, lane, own, held, temporary, open_secs, presence, telemetry, before)
        note_try(held.files, shape)
        return running
    except OSError as error:
        held.close()
        why = f"checkpoint {place} cannot be written: {explain(str(error))}"
        presence.ended(TopologyState.FAILED, why)
        raise CheckpointError(why) from None
    except BaseException as error:
        held.close()
        presence.ended(TopologyState.FAILED, str(error) or type(error).__name__)
        raise


def _shape_of(held: Checkpoint, topology: Topology, session: SparkSession, *, apply: bool) -> tuple[Intent, StartShape]:
    """The requests of operators, and the shape with which the topology starts.

    Raises:
        CheckpointError: it cannot go on from the checkpoint, or needs a decision.
    """
    intent = Intent.loads(held.files.read(CONTROL_FILE), f"checkpoint {held.directory}")
    inlets = InletSources.read(held.files, held.generations)
    known = topology, intent, cores_of(session), held.generations, held.last_commit()
    shape = shape_of_start(*known, inlets, is_planned=held.log.is_planned)
    shape.started.check(held.directory, apply=apply or shape.is_decided)
    return intent, shape
