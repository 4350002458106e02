"""Python bolts of Apache Storm's word count: `storm_bolts.py split|count`, started by Storm's ``ShellBolt``.

It speaks the multilang protocol: messages are JSON, each followed by a line ``end``. What a bolt has to say about one
tuple goes out in one write.
"""

import json
import os
import sys
from collections import Counter


def messages():
    """What Storm sends, until it closes the pipe."""
    lines = []
    for line in sys.stdin:
        if line == "end\n":
            yield json.loads("".join(lines))
            lines.clear()
        else:
            lines.append(line)


def send(answers):
    sys.stdout.write("".join(f"{json.dumps(answer)}\nend\n" for answer in answers))
    sys.stdout.flush()


def shake_hands(greeting):
    """Answer the first message: Storm wants the process id, and a file of that name to kill it by."""
    pid = os.getpid()
    open(os.path.join(greeting["pidDir"], str(pid)), "w").close()
    send([{"pid": pid}])


def split(message):
    """Emits of the words of a line, anchored to it."""
    for word in message["tuple"][0].split():
        yield {"command": "emit", "anchors": [message["id"]], "tuple": [word], "need_task_ids": False}


counts = Counter()


def count(message):
    counts[message["tuple"][0]] += 1
    return ()


execute = {"split": split, "count": count}[sys.argv[1]]
incoming = messages()
shake_hands(next(incoming))
for message in incoming:
    if message["stream"] == "__heartbeat":
        send([{"command": "sync"}])
    else:
        send([*execute(message), {"command": "ack", "id": message["id"]}])
