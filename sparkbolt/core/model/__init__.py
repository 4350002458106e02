"""The model: what users declare, what their code is handed, and what a running topology tells them.

Read in this order: ``tuples``, ``arguments``, ``retry``, ``dead_letters``, ``config``, ``groupings``, ``interfaces``,
``components``, ``function_bolts``, ``hosted``, ``durable``, ``pickling``, ``keeping``, ``letter_ways``,
``method_mistakes``, ``topology_mistakes``, ``topology``, ``lane``; then what is told: ``metrics``, ``story``,
``outage``, ``reports``, ``progress``, ``running``, ``unsent``.
"""
