"""UI: shows topologies in a browser and to programs by HTTP, from a separate process."""

from sparkbolt.faces.ui.app import make_app
from sparkbolt.faces.ui.serve import serve

__all__ = ["make_app", "serve"]
