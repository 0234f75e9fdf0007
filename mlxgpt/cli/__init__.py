"""The command line: typer commands, one a file; no logic."""
