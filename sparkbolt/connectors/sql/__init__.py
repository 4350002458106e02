"""SQL databases: the bolt that writes rows."""
