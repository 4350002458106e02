"""Becomes a command that the kernel kills when its starter ends: ``leash.py PID_OF_THE_STARTER COMMAND...``.

The wish is kept over ``exec``. Only Linux knows it; elsewhere the starter's own end has to do.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(starter: str, *command: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(starter):
            sys.exit("the process that started this one is gone already")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
