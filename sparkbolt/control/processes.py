"""Processes: identifies a process, and decides whether it still lives.

A pid is unique only within one boot of one machine (or container), and the system reuses it. So a note has the pid, the
start time of the process, and the space in which the pid counts. If a process cannot be judged from here, ``gone`` is
None.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class ProcessNote:
    """Identifies a process from outside."""

    host: str
    pid: int
    started: float
    """When it was started, in seconds since the machine's boot; 0: unknown."""
    space: str
    """The boot and the process namespace in which ``pid`` counts; empty if unknown."""


def this_process() -> ProcessNote:
    """The note of this process."""
    return ProcessNote(socket.gethostname(), os.getpid(), started_of(os.getpid()) or 0.0, pid_space())


@cache
def pid_space() -> str:
    """The boot of this machine and the process namespace of this process; empty if the system does not report them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def started_of(pid: int) -> float | None:
    """When a process was started, in seconds since the machine's boot; None if there is none, or it has ended.

    A process counts as ended even if its parent has not waited for it yet.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def gone(note: ProcessNote) -> bool | None:
    """Whether a process has ended; None if this process cannot know, since the other one is elsewhere.

    >>> gone(this_process())
    False
    """
    own = pid_space()
    if own:
        if note.space != own:
            return None
        started = started_of(note.pid)
        return started is None or bool(note.started and abs(started - note.started) > 0.5)
    if note.host != socket.gethostname():
        return None
    try:
        os.kill(note.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # a process of another user
        return False
    return False
