"""The protocol: values and codecs that cross processes.

Read in this order: ``attempts``, ``plan``, ``edges``, ``frames``, ``verdicts``, ``acker``.
"""
