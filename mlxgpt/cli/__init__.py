"""The command line: typer commands, one a file; no logic."""


def main() -> None:
    """Run `mlxgpt`; a Ctrl-C that comes while it is still being imported is no traceback."""
    try:
        from mlxgpt.cli.app import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()
