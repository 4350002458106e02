"""The engine on Spark: the only package that imports pyspark. It decodes, calls the core, and encodes.

Its modules run in three kinds of processes. A module that runs on executors imports nothing of ``core.driver``; a test
loads them and looks.

=================== ================================================================================================
process             modules
=================== ================================================================================================
driver              ``versions``, ``scratch``, ``locations``, ``jvm``, ``code_shipping``, ``session``, ``failure_text``,
                    ``driver_rpc``, ``checkpoint``, ``relocation``, ``state_lineage``, ``user_calls``,
                    ``spout_threads``, ``life``, ``error_log``, ``running``; ``lane_query`` makes the query
planner             ``data_source``, ``processor``, ``driver_rpc_client``: Spark starts Python processes that only
                    look at them
executor            ``daemon``, ``executor``, ``crash_shield``, ``source_task``, ``level_task``, ``lane_query``
both ends           ``job_bundle`` (from the driver to executors), ``activity_pages`` and ``task_stdout`` (back)
=================== ================================================================================================

Read in this order: ``versions``, ``scratch``, ``locations``, ``task_stdout``, ``jvm``, ``code_shipping``, ``session``,
``failure_text``, ``driver_rpc_client``, ``driver_rpc``, ``job_bundle``, ``data_source``, ``processor``,
``activity_pages``, ``executor``, ``crash_shield``, ``source_task``, ``level_task``, ``lane_query``, ``daemon``,
``checkpoint``, ``relocation``, ``state_lineage``, ``user_calls``, ``spout_threads``, ``life``, ``error_log``,
``running``.
"""
