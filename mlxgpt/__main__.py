"""`python -m mlxgpt`: the command line."""

from mlxgpt.cli.app import main

main()
