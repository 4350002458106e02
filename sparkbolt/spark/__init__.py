"""The engine on Spark: the only package that imports pyspark. It decodes, calls the core, encodes.

Read in this order: ``scratch``, ``places``, ``session``, ``explain``, ``bridge``, ``source``, ``workers``, ``shield``,
``lane_query``, ``checkpoint``, ``lineage``, ``spout_threads``, ``life``, ``announcer``, ``running``.
"""
