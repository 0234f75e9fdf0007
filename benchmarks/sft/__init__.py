"""Fine-tuning: how examples are drawn, and speed, memory and loss against mlx-lm."""
