"""Reports: figures drawn from run records, which hold no private rows."""
