"""What Spark says when a query fails, as a sentence for a user.

Which question it answers: which of the hundred lines of a py4j error tells what to do?

Read before: nothing.
"""

from __future__ import annotations


def explain(text: str) -> str:
    """A sentence for a user, of what Spark says when a query fails."""
    for name in (
        "EngineError",
        "StateError",
        "CheckpointError",
        "FencedError",
        "OutdatedLifeError",
        "EmitError",
        "InvariantError",
    ):
        marker = f"sparkbolt.errors.{name}: "
        if marker in text:
            return text.split(marker, 1)[1].split("\n", 1)[0].strip()
    if "No space left on device" in text:
        return (
            "a disk is full (No space left on device), that of the checkpoint or of Spark's temporary files: make "
            "room; nothing that was acked is lost, and the topology goes on from its checkpoint"
        )
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    python = [
        line
        for line in lines
        if ": " in line and line.split(":", 1)[0].rsplit(".", 1)[-1].endswith(("Error", "Exception"))
    ]
    return python[-1] if python else (lines[0] if lines else "Spark's query failed and said nothing")
