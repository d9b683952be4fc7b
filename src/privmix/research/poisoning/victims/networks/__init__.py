"""Networks with batch norm, for training without privacy; one file each."""
