"""What is read from a checkpoint, beside what other tools read from it: figures must be equal."""
