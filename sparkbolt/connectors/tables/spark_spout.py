"""SparkSpout: any DataFrame of Spark is a source.

Spark reads the rows and stores how far it has read, in the same query; this class only names the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparkbolt.api.inlets import InletSpout
from sparkbolt.base.engine_door import engine
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import ConfigError


class SparkSpout(InletSpout):
    """Emits the rows of a DataFrame of Spark: one tuple a row, one field a column.

    The DataFrame may be a stream, of any source that Structured Streaming can read; or a table, which is read once:
    the spout then ends. A row is tracked like a line of a file: its tree is acked, or it is emitted again by the retry
    policy, and finally becomes a dead letter. Spark's progress is committed with the micro-batch; a row that is not
    acked yet is kept, by value, in the state of the spout's tasks, and is never read again.

    >>> SparkSpout(lambda spark: spark.readStream.format("rate").load(), outputs=["value"], message_id="value").outputs
    ['value']
    """

    def __init__(
        self,
        frame: Callable[[Any], Any],
        *,
        outputs: Sequence[str] | None = None,
        message_id: str | None = None,
    ) -> None:
        """Store the arguments; nothing is read before the topology starts.

        Args:
            frame: makes the DataFrame, from the session (``SparkSession``) of the topology. It is called each time that
                the query starts, and must give the same DataFrame with the same checkpoint.
            outputs: the columns to emit, which become the fields. By default all; Spark is then asked for them when
                the topology is built, in the active session, or in one that is started for it.
            message_id: the column with your own id of a row: it is shown in stories and dead letters.

        Raises:
            ConfigError: an argument cannot be meant.
        """
        given: tuple[object, object, object] = (frame, outputs, message_id)  # users may pass anything
        if not callable(given[0]):
            raise ConfigError(
                f"frame is {printed(frame):.80}, expected a function of the session that returns a DataFrame, such as "
                'lambda spark: spark.readStream.format("rate").load()'
            )
        if outputs is not None and (isinstance(given[1], str) or not all(isinstance(one, str) for one in outputs)):
            raise ConfigError(f"outputs is {printed(outputs):.80}, expected a list of names of columns")
        if message_id is not None and not isinstance(given[2], str):
            raise ConfigError(f"message_id is {printed(message_id):.80}, expected the name of a column")
        if outputs is not None and message_id is not None and message_id not in outputs:
            raise ConfigError(f"message_id is {message_id!r}, which is none of the outputs {list(outputs)}")
        self._frame = frame
        self._outputs = None if outputs is None else list(outputs)
        self.message_id = message_id

    @property
    def outputs(self) -> list[str]:  # type: ignore[override]
        """The fields: the given columns, or all that the DataFrame has."""
        if self._outputs is None:
            self._outputs = list(engine("columns_of")(self))
        return self._outputs

    def frame(self, spark: Any) -> Any:
        """Driver: make the DataFrame."""
        return self._frame(spark)
