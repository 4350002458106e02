"""The engine on Spark: the only package that imports pyspark. It decodes, calls the engine's core, and encodes.

Its modules run in three kinds of processes. A module that runs on executors imports nothing of ``driver``; a test loads
them and checks.

=================== ================================================================================================
process             modules
=================== ================================================================================================
driver              ``versions``, ``scratch``, ``location_checks``, ``jvm``, ``code_shipping``, ``session``,
                    ``failure_text``, ``driver_rpc``, ``checkpoint``, ``relocation``, ``state_lineage``,
                    ``user_calls``, ``spout_threads``, ``life``, ``error_log``, ``running_on_spark``; ``lane_query``
                    makes the query
planner             ``data_source``, ``processor``, ``driver_rpc_client``: Spark starts Python processes that only
                    inspect them
executor            ``daemon``, ``executor``, ``crash_shield``, ``source_task``, ``level_task``, ``lane_query``
both ends           ``job_bundle`` (from the driver to executors), ``activity_pages`` and ``task_stdout`` (back)
=================== ================================================================================================
"""
