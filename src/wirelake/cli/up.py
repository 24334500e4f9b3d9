"""`wirelake up`: everything in one go. The gateway in this process, the pipeline in one of its own beside it."""

import logging
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from wirelake.cli import serve
from wirelake.cli.logformat import start_logging
from wirelake.limits import CLI_PIPELINE_STOP_S

_log = logging.getLogger(__name__)
_NEEDED: Final = ("deltalake", "numba", "pyspark")


def up(log_format: str, log_level: str, config_file: Path | None, data_folder: Path | None) -> None:
    start_logging(log_format, log_level)
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        click.echo(f"Without {', '.join(missing)} the tables are not filled: `pip install wirelake[pipeline]`.")
        serve.end(serve.serve(config_file, data_folder))
        return
    beside = Pipeline(config_file, data_folder)
    try:
        in_time = serve.serve(config_file, data_folder, beside.start)
    finally:
        beside.stop()
    serve.end(in_time)


class Pipeline:
    """The job as a process. It starts itself anew after a failure; should it end all the same, the gateway goes on."""

    def __init__(self, config_file: Path | None, data_folder: Path | None) -> None:
        self._words = [sys.executable, "-m", "wirelake.cli.main", "pipeline", "run", "--beside"]
        self._words += ["--config", str(config_file)] if config_file is not None else []
        self._words += ["--data", str(data_folder)] if data_folder is not None else []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Once there is a log to read. In a session of its own: Ctrl-C is for us, and we tell it when."""
        self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, start_new_session=True)

    def stop(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(CLI_PIPELINE_STOP_S)
        except subprocess.TimeoutExpired:
            _log.error("the pipeline did not end within %g s, and is ended", CLI_PIPELINE_STOP_S)
            process.kill()
            process.wait()


command = click.Command(
    "up",
    callback=up,
    params=serve.command.params,
    help="Run everything on this machine, data in ./data, until Ctrl-C: the gateway with every door and its HTTP API, "
    "and the pipeline that fills the tables.",
    epilog="""\b
Example:
  wirelake up --data ./data""",
)
