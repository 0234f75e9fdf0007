"""Fine-tuning: a model that is there, rows to learn, and what of it may change."""
