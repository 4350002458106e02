"""The model: what users declare, what their code is handed, and what a running topology tells them.

Read in this order: ``tuples``, ``arguments``, ``retry``, ``dead_letters``, ``config``, ``groupings``, ``interfaces``,
``components``, ``function_bolts``, ``runtime_bolts``, ``durable``, ``pickling``, ``statefulness``,
``dead_letter_targets``, ``method_validation``, ``validation``, ``topology``, ``lane``; then what is told: ``causes``,
``metrics``, ``story``, ``outage``, ``reports``, ``progress``, ``running``, ``unsent``.
"""
