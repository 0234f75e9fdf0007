"""Rows of conversations, questions or texts -> examples -> rows of a batch. numpy; never mlx."""
