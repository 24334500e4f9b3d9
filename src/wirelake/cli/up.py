"""Implement `wirelake up`: the gateway in this process, the pipeline in a child process."""

import logging
from pathlib import Path

import click

from wirelake.cli import serve
from wirelake.cli.child_process import ChildProcess
from wirelake.cli.dependencies import missing_for_pipeline
from wirelake.cli.limits import CLI_PIPELINE_STOP_S
from wirelake.cli.logformat import start_logging

_log = logging.getLogger(__name__)


def up(log_format: str, log_level: str, accept_loss: bool, config_file: Path | None, data_folder: Path | None) -> None:
    start_logging(log_format, log_level)
    missing = missing_for_pipeline()
    if missing:
        click.echo(
            f"The pipeline is not installed (missing: {', '.join(missing)}). Run `pip install wirelake[pipeline]`."
        )
        serve.end(serve.serve(config_file, data_folder, accept_loss=accept_loss))
        return
    # The job restarts itself after a failure; if it ends all the same, the gateway keeps running.
    words = ["--config", str(config_file)] if config_file is not None else []
    words += ["--data", str(data_folder)] if data_folder is not None else []
    pipeline = ChildProcess("pipeline", "run", "--beside", *words)
    try:
        # Started once there is a log to read.
        in_time = serve.serve(config_file, data_folder, pipeline.start, accept_loss=accept_loss)
    finally:
        if pipeline.stop(CLI_PIPELINE_STOP_S) is None:
            _log.error("the pipeline did not stop within %g s and was killed", CLI_PIPELINE_STOP_S)
    serve.end(in_time)


command = click.Command(
    "up",
    callback=up,
    params=serve.command.params,
    help="Run the gateway, with all listeners and the HTTP API, and the pipeline that fills the tables, until Ctrl-C. "
    "Data is in ./data unless set otherwise.",
    epilog="""\b
Example:
  wirelake up --data ./data""",
)
