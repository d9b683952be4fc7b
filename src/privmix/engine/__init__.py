"""The engine: exact sums of records, tile by tile, in memory, from disk or on a cluster, and noise once."""
