"""`python -m mlxgpt`: the command line."""

from mlxgpt.cli import main

main()
