"""What Spark says when a query fails, as a sentence for a user.

Which question it answers: which of the hundred lines of a py4j error tells what to do?

Read before: nothing.
"""

from __future__ import annotations



