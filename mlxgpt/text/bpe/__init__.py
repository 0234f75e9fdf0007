"""Words -> ids by byte-pair encoding, and word counts -> merges, in plain Python. No files."""
