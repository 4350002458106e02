"""The engine on Spark: the only package that imports pyspark. It decodes, calls the core, and encodes.

Read in this order: ``scratch``, ``locations``, ``task_stdout``, ``jvm``, ``code_shipping``, ``session``,
``failure_text``, ``driver_rpc_client``, ``driver_rpc``, ``job_bundle``, ``data_source``, ``processor``,
``activity_pages``, ``executor``, ``crash_shield``, ``source_task``, ``level_task``, ``lane_query``, ``daemon``,
``checkpoint``, ``relocation``, ``state_lineage``, ``user_calls``, ``spout_threads``, ``life``, ``error_log``,
``running``.
"""
