"""Commands for topologies that run elsewhere: to see them, and to change them.

Read in this order: ``asking``, ``sheets``, ``overview``, ``statistics``, ``tailing``, ``watching``, ``changes``,
``serving``, ``actions``, ``parser``; ``detaching`` is for ``sparkbolt run --detach``.
"""
