"""The model: what users declare, the objects that their code receives, and what a running topology reports to them.

Read in this order: ``tuples``, ``arguments``, ``retry``, ``dead_letters``, ``config``, ``groupings``, ``interfaces``,
``components``, ``function_bolts``, ``runtime_bolts``, ``pickling``, ``statefulness``,
``dead_letter_targets``, ``method_validation``, ``committers``, ``validation``, ``topology``, ``topology_changes``,
``lane``; then what is reported:
``causes``, ``metrics``, ``tree_life``, ``story``, ``outage``, ``reports``, ``progress``, ``running``, ``unsent``.
"""
