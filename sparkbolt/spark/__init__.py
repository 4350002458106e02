"""The engine on Spark: the only package that imports pyspark. It decodes, calls the core, encodes.

Read in this order: ``scratch``, ``places``, ``session``, ``explain``, ``asker``, ``bridge``, ``shipment``,
``source``, ``processor``, ``workers``, ``shield``, ``source_task``, ``level_task``,
``lane_query``, ``checkpoint``, ``relocation``, ``lineage``, ``spout_threads``, ``life``, ``announcer``, ``running``.
"""
