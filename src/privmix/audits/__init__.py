"""What every design must answer: its worst case, its noise, and how far one record moves what is released."""
