"""Java, Spark sessions and Python workers."""
