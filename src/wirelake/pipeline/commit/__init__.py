"""Write Parquet files, manifests and Delta commits, exactly once for each batch."""
