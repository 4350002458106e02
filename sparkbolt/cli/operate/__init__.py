"""Commands for topologies that run elsewhere: to see them, and to change them.

Read in this order: ``sheets``, ``overview``, ``statistics``, ``tailing``, ``watching``, ``changes``, ``parser``;
``detaching`` is for ``sparkbolt run --detach``.
"""
