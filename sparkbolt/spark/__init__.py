"""The engine on Spark: the only package that imports pyspark. It decodes, calls the core, encodes.

Read in this order: ``scratch``, ``locations``, ``session``, ``failure_text``, ``driver_rpc_client``, ``driver_rpc``,
``job_bundle``, ``data_source``, ``processor``, ``executor``, ``crash_shield``, ``source_task``, ``level_task``,
``lane_query``, ``checkpoint``, ``relocation``, ``state_lineage``, ``spout_threads``, ``life``, ``error_log``,
``running``.
"""
