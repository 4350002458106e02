"""User code that forks: what comes back in the child does nothing of Sparkbolt's a second time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings

from sparkbolt.spark.session import _leave_to_this_process
from sparkbolt.spark.user_calls import Calls


def test_a_forked_child_that_returns_from_a_call_of_the_driver_ends() -> None:
    calls = Calls(threading.Condition())
    reads, writes = os.pipe()
    with calls.at("next_tuple of spout 'jobs'"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    os.write(writes, b"parent")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert os.read(reads, 100) == b"parent", "the child has not come as far as this"


def test_a_forked_child_that_raises_in_user_code_ends_before_it_acts_as_its_parent() -> None:
    """In a process of its own, which says of itself that user code is called in it."""
    program = """
import os, sys
from sparkbolt.base.exceptions import own_process
from sparkbolt.worker.failures import failure_of
own_process()
child = os.fork()
try:
    if child == 0:
        sys.exit(0)
    raise ValueError("the parent's own")
except BaseException as error:
    print(failure_of(error).reason, flush=True)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.splitlines() == ["ValueError: the parent's own", "1"]


def test_a_forked_process_does_not_hold_the_pipe_that_keeps_the_jvm_alive() -> None:
    """In a process of its own, since what is done at a fork cannot be undone."""
    program = f"""
import os
from {_leave_to_this_process.__module__} import _leave_to_this_process
reads, writes = os.pipe()
_leave_to_this_process(writes)
child = os.fork()
if child == 0:
    os.close(reads)
    import time
    time.sleep(600)
os.close(writes)
print(os.read(reads, 1) == b"", flush=True)
os.kill(child, 9)
os.waitpid(child, 0)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "True\n", "the end of the pipe is seen, though a child lives"
