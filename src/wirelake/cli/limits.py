"""The bounds of the command line, by name, with their units at the end."""

from typing import Final

from wirelake.limits import MIB

# The command line: hex or raw bytes on standard input.
CLI_INPUT_BYTES_MAX: Final = 64 * MIB

CLI_DEMO_START_S: Final = 30.0  # for the tour's gateway to be ready
CLI_DEMO_PIPELINE_S: Final = 300.0  # for the tour's tables to have everything, and again for the job to end
CLI_DEMO_LOOK_S: Final = 0.2
CLI_PIPELINE_STOP_S: Final = 30.0  # for the pipeline beside `up` to end

# The command line: talking to a gateway that runs.
CLI_CONNECT_S: Final = 5.0  # until it takes the connection
CLI_ANSWER_S: Final = 30.0  # for an answer, beyond the time that the request itself asks for
CLI_SILENCE_S: Final = 60.0  # on a stream, where the gateway gives a sign of life far more often
CLI_ANSWER_BYTES_MAX: Final = 64 * MIB
CLI_CELL_CHARS_MAX: Final = 80  # of a value in a table for people
CLI_LINE_BYTES_MAX: Final = 32 * MIB  # one line of a stream: a notification
CLI_RELOAD_S: Final = 10.0  # until the gateway has said what a reload changed
CLI_RELOAD_LOOK_S: Final = 0.05  # how often that is looked for
CLI_SHUTDOWN_MARGIN_S: Final = 0.5  # of GATEWAY_STOP_S, kept for the end of the process itself
