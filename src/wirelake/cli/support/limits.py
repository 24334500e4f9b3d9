"""Define the limits of the command line, with their units at the end of their names."""

from typing import Final

from wirelake.limits import MIB

# The command line: hex or raw bytes on standard input.
CLI_INPUT_BYTES_MAX: Final = 64 * MIB

CLI_DEMO_START_S: Final = 30.0  # for the demo's gateway to be ready
CLI_DEMO_PIPELINE_S: Final = 300.0  # for the demo's tables to be complete, and again for the job to stop
CLI_DEMO_LOOK_S: Final = 0.2
CLI_PIPELINE_STOP_S: Final = 30.0  # for the pipeline of `up` to stop

# The command line: requests to a running gateway.
CLI_CONNECT_S: Final = 5.0  # until it accepts the connection
CLI_ANSWER_S: Final = 30.0  # for a response, in addition to the timeout in the request
CLI_SILENCE_S: Final = 60.0  # on a stream, where the gateway sends keep-alives far more often
CLI_ANSWER_BYTES_MAX: Final = 64 * MIB
CLI_CELL_CHARS_MAX: Final = 80  # of a value in a table for people
CLI_PORTS_SHOWN_MAX: Final = 8  # ports of a capture with several connections
CLI_LINE_BYTES_MAX: Final = 32 * MIB  # one line of a stream: a notification
CLI_RELOAD_S: Final = 10.0  # until the gateway has reported what a reload changed
CLI_RELOAD_LOOK_S: Final = 0.05  # interval of checking for that
CLI_SHUTDOWN_MARGIN_S: Final = 0.5  # part of GATEWAY_STOP_S, reserved for the exit of the process
