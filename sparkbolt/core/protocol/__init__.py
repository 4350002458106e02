"""The protocol: values and codecs that cross processes.

Read in this order: ``causes``, ``attempts``, ``records``, ``plan``, ``anchoring``, ``frames``, ``acker``,
``acker_bytes``, ``accounts``, ``shards``, ``feedback``.
"""
