"""tokenizer.json <-> what a tokenizer is made of: read with every part checked, written whole."""
