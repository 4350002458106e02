"""Drawing: pictures of a topology and of a run, for terminals, documents and notebooks."""
