"""The topology builder with streams: what users import as ``sparkbolt.TopologyBuilder``."""

from __future__ import annotations

from typing import Unpack

from sparkbolt.api.bolt_declarer import ComponentHandle, StreamHandle
from sparkbolt.api.components import PartitionedSpout, Spout
from sparkbolt.api.config import ComponentSettings
from sparkbolt.api.topology import TopologyDeclarer, declarations_of
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import ConfigError
from sparkbolt.streams.operator_input import derived_id, kebab
from sparkbolt.streams.stream import Stream, stream_of


class TopologyBuilder(TopologyDeclarer):
    """Collects spouts and bolts, or streams with their operators; ``build`` checks all of them together.

    >>> from sparkbolt import bolt
    >>> @bolt(outputs=["word"])
    ... def split(tup): yield from ([word] for word in tup["line"].split())
    >>> builder = TopologyBuilder("words")
    >>> _ = builder.set_bolt("split", split).shuffle_grouping("lines")
    >>> builder.build()
    Traceback (most recent call last):
    sparkbolt.errors.InvalidTopology: topology 'words' has 2 mistake(s):
      - bolt 'split': it subscribes to 'lines', which does not exist: the components are ['split']
      - there is no spout: a topology needs at least one
    """

    def stream(
        self,
        source: Spout | PartitionedSpout | ComponentHandle | StreamHandle | str,
        name: str | None = None,
        parallelism: int | None = None,
        *,
        renamed_from: str | None = None,
        **settings: Unpack[ComponentSettings],
    ) -> Stream:
        """Return a stream with the tuples of a spout, which is declared with it, or of a component that is declared.

        Args:
            source: a spout; or the handle or the id of a component, whose stream ``default`` it is; or the handle of
                one of its streams.
            name: the id of the spout; by default, one is made of its class: ``text-1`` for a ``TextSpout``.
            parallelism: how many tasks the spout has; 1 by default.
            renamed_from: as for ``set_spout``.
            settings: of the spout, as for ``set_spout``.

        Raises:
            ConfigError: there is no such component or stream, or arguments that only a spout has are given for one.

        >>> from sparkbolt.spouts import TextSpout
        >>> builder = TopologyBuilder("words")
        >>> lines = builder.stream(TextSpout("books/*.txt"), name="lines", parallelism=2)
        >>> lines.flat_map(lambda tup: tup.line.split(), outputs=["word"])
        <Stream of 'lines-flat-map-1': word>
        """
        if isinstance(source, Spout | PartitionedSpout):
            id_ = derived_id(self, kebab(type(source).__name__, "Spout")) if name is None else name
            tasks = 1 if parallelism is None else parallelism
            handle = self.set_spout(id_, source, tasks, renamed_from=renamed_from, **settings)
            return stream_of(self, StreamHandle(handle.id, DEFAULT_STREAM))
        if name is not None or parallelism is not None or renamed_from is not None or settings:
            raise ConfigError(
                f"stream({printed(source)}): the component is declared already, so give nothing else here; a spout "
                "gets its name and its parallelism here"
            )
        if isinstance(source, ComponentHandle):
            source = StreamHandle(source.id, DEFAULT_STREAM)
        elif isinstance(source, str):
            source = StreamHandle(source, DEFAULT_STREAM)
        if getattr(source, "component", None) not in declarations_of(self):
            known = list(declarations_of(self))
            raise ConfigError(
                f"stream({printed(source)}): expected a spout, or the handle or the id of a declared component: {known}"
            )
        return stream_of(self, source)
