"""What Sparkbolt costs, in figures that one command reproduces: `scripts/bench NAME [--json]`.

Are the figures that the design promises reached on this machine, now?
Rule 1: a figure is no test; a benchmark that ran ends with exit code 0 whatever it measured.
Rule 2: what is compared runs in one process, in turn (A B A B), and the median of the turns is shown.
Rule 3: rates are of the steady middle of a run, not of its start.

In reading order: figures, text, runs, then a module a benchmark: words, columns, floor, ledger, driver, state, peers.
"""
