"""The protocol: values and codecs that cross processes.

Read in this order: ``attempts``, ``records``, ``plan``, ``edges``, ``frames``, ``acker``,
``verdict_codec``, ``accounts``, ``shards``, ``feedback``.
"""
