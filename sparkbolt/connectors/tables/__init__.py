"""Tables: Delta, Iceberg, Parquet, and what Spark reads and writes."""
