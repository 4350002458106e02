"""The protocol: values and codecs that cross processes.

Read in this order: ``causes``, ``attempts``, ``plan``, ``edges``, ``frames``, ``verdicts``, ``acker``.
"""
