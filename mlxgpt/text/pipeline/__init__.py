"""What a tokenizer.json does to text before and after BPE, as typed steps in plain Python."""
