"""`launch`: a command in several processes."""

from typing import Annotated

import typer

from greenfold.cli.shell import app


@app.command()
def launch(
    command: Annotated[list[str], typer.Argument(help="After --, such as: -- fit … --stream")],
    nproc: Annotated[int, typer.Option(help="Processes on this machine.")] = 1,
    nnodes: Annotated[str, typer.Option(help="Machines, or least:most of them.")] = "1",
    endpoint: Annotated[
        str | None, typer.Option(help="host:port where several machines meet.")
    ] = None,
    max_restarts: Annotated[int, typer.Option(help="How often to start again.")] = 10,
    run_id: Annotated[
        str, typer.Option(help="Name of the run, if several meet there.")
    ] = "greenfold",
) -> None:
    """Run a command in several processes, by torchrun."""
    from greenfold.scale.launch import launch as start

    start(
        command,
        nproc=nproc,
        nnodes=nnodes,
        endpoint=endpoint,
        max_restarts=max_restarts,
        run_id=run_id,
    )
