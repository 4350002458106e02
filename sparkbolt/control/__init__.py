"""Operate: see and change running topologies, from outside of the process that runs them."""
