"""Operate: see what runs, and change it, from outside of the process that runs it.

Read in this order: ``documents`` (what is told about a topology), ``home`` (where running topologies are found),
``control`` and ``client`` (how one is asked), ``operator`` (the one way to ask, for command line, REST and UI).
"""
