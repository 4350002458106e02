"""UI: topologies in a browser and for programs, by HTTP, from a process of its own.

Read in this order: ``asking`` (how the Operator is asked from here), ``security`` (who may ask), ``app`` (which paths
there are), ``storm_rest``, ``storm_pages`` and ``storm_topology`` (Storm's REST interface), ``rest``, ``openapi`` and
``changes`` (our own), ``prometheus``, ``serve``.
"""

from sparkbolt.faces.ui.app import make_app
from sparkbolt.faces.ui.serve import serve

__all__ = ["make_app", "serve"]
