"""Implement `wirelake doctor`: check this machine and the settings for problems."""

import logging
import platform
import resource
import shutil
import socket
import stat
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from wirelake.cli.support.dependencies import missing, missing_for_pipeline
from wirelake.cli.support.options import settings_options
from wirelake.cli.support.output import counted, format_time
from wirelake.cli.support.processes import gateway_pid
from wirelake.config import Settings, load
from wirelake.errors import WirelakeError
from wirelake.gateway.store_check import examine_state_key, examine_stores, expiring_identities
from wirelake.key_source import KeySource, state_key
from wirelake.limits import MIB
from wirelake.pipeline.spark.java import find_java
from wirelake.protocols import registry
from wirelake.protocols.self_test import first_fault

PYTHON_MIN = (3, 11)
FREE_BYTES_MIN = 1024 * MIB
OPEN_FILES_MIN = 4096
TOKENS_EXPIRE_S = 7 * 24 * 3600.0
NAMES_SHOWN = 5


class Finding(Struct, frozen=True):
    is_ok: bool
    text: str  # a sentence; for a problem, with what to do
    is_warning: bool = False  # no problem yet


@click.command(
    epilog="""\b
Example:
  wirelake doctor"""
)
@settings_options
def doctor(config_file: Path | None, data_folder: Path | None) -> None:
    """Check this machine and the settings for problems. The exit code is 1 if there are any."""
    console = Console(highlight=False, soft_wrap=True)
    findings = list(examine(config_file, data_folder))
    for finding in findings:
        mark = ("✓ ", "green") if finding.is_ok else ("✗ ", "bold red")
        mark = ("! ", "bold yellow") if finding.is_warning else mark
        console.print(Text.assemble(mark, finding.text))
    wrong = sum(not finding.is_ok for finding in findings)
    console.print(Text(f"{counted(wrong, 'problem')} found." if wrong else "No problems found.", "bold"))
    sys.exit(1 if wrong else 0)


def examine(config_file: Path | None, data_folder: Path | None) -> Iterator[Finding]:
    yield _python()
    yield _modules()
    yield from _protocols()
    yield _pipeline()
    try:
        settings = load(config_file, data_folder)
    except WirelakeError as error:
        yield Finding(False, f"{error}. Fix the setting; `wirelake config` prints the effective settings.")
        return
    yield Finding(True, "The settings are valid.")
    yield _folder(Path(settings.data))
    yield from _stores(Path(settings.data))
    yield from _state_key(Path(settings.data), state_key(settings.state.key, Path(settings.data)))
    yield from _tokens(Path(settings.data))
    yield _open_files()
    yield from _listeners(settings)


def _python() -> Finding:
    if sys.version_info < PYTHON_MIN:
        return Finding(False, f"Python is {platform.python_version()}; install 3.11 or later.")
    return Finding(True, f"Python is {platform.python_version()}.")


def _modules() -> Finding:
    gone = missing()
    if gone:
        return Finding(False, f"Missing packages: {', '.join(gone)}. Run `pip install wirelake` again.")
    return Finding(True, "All packages that the gateway needs are installed.")


def _pipeline() -> Finding:
    """Check the pipeline, which is optional: not having it installed is not a problem."""
    gone = missing_for_pipeline()
    if gone:
        return Finding(
            True,
            f"The pipeline is not installed (missing: {', '.join(gone)}). Run `pip install wirelake[pipeline]`.",
        )
    try:
        java = find_java()
    except WirelakeError as error:
        return Finding(False, f"The pipeline cannot run: {error}.")
    return Finding(True, f"The pipeline can run: PySpark {version('pyspark')} on {java}.")


def _protocols() -> Iterator[Finding]:
    protocols = registry.all_protocols()
    yield Finding(True, f"Protocols: {', '.join(protocol.name for protocol in protocols)}.")
    for name, reason in registry.failures().items():
        yield Finding(False, f"The protocol {name} is disabled: {reason}. Fix or uninstall its package.")
    logging.disable(logging.ERROR)  # an installed protocol's exceptions are reported as findings
    try:
        faults = {each.name: first_fault(each) for each in protocols if each.name not in registry.BUILT_IN}
    finally:
        logging.disable(logging.NOTSET)
    for name, fault in faults.items():
        if fault:
            yield Finding(False, f"The protocol {name} failed its self-test: {fault}. Fix its package.")


def _folder(folder: Path) -> Finding:
    """Check the nearest existing folder: the rest is created when first needed."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not place.is_dir():
        return Finding(False, f"The data folder {folder} cannot be created: {place} is a file. Change --data.")
    free = shutil.disk_usage(place).free
    if not _writable(place):
        return Finding(
            False,
            f"The data folder {folder} is not writable: grant this user write permission, or change --data.",
        )
    if free < FREE_BYTES_MIN:
        return Finding(False, f"Only {free // MIB} MiB are free for the data folder {folder}: free some disk space.")
    if folder.exists() and folder.stat().st_mode & stat.S_IRWXO:
        text = f"Other users of this machine can read the data folder {folder}, which contains tokens in plain text"
        return Finding(False, f"{text}: `chmod 700 {folder}`.")
    return Finding(True, f"The data folder {folder} is writable, {free // MIB} MiB are free.")


def _stores(folder: Path) -> Iterator[Finding]:
    """Check the stores of an existing data folder."""
    try:
        problems = examine_stores(folder)
    except OSError:  # not a folder, or another user's: reported above
        return
    for problem in problems:
        yield Finding(False, f"In the data folder, {problem}. See the operations manual, The data folder.")
    if not problems and (folder / "log").exists():
        yield Finding(True, "The log, the state and the tables are consistent.")


def _state_key(folder: Path, source: KeySource) -> Iterator[Finding]:
    """Check the key for the secrets in the state."""
    if source.is_default and source.is_missing and not (folder / "state.db").exists():
        return  # it is generated with the state
    try:
        problem = examine_state_key(folder, source)
    except (WirelakeError, OSError) as error:
        yield Finding(False, f"The key for the secrets in the state cannot be used: {error}.")
        return
    if problem:
        yield Finding(False, f"{problem}.")
    path = source.path
    if path is not None and path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield Finding(False, f"Others can read {path}, the key for the secrets in the state: `chmod 600 {path}`.")
    elif path is not None and not source.is_default and path.resolve().is_relative_to(folder.resolve()):
        yield Finding(
            False,
            f"The key for the secrets in the state, {path}, is in the data folder: whoever copies the folder has both."
            " Move it elsewhere, and change state.key.",
        )
    elif source.is_default:
        yield Finding(
            True,
            "The secrets in the state are encrypted with keys/state.key of the data folder, which protects a copy of"
            " state.db alone. To keep the key elsewhere, see the security manual, Secrets in the state.",
        )
    else:
        yield Finding(True, f"The secrets in the state are encrypted with the key from {source}.")


def _tokens(folder: Path) -> Iterator[Finding]:
    """Warn of identities that soon cannot log in any more."""
    try:
        expiring = expiring_identities(folder, time.time_ns() // 1_000_000, TOKENS_EXPIRE_S)
    except OSError:
        return
    if expiring:
        names = ", ".join(f"{name} ({format_time(at_ms)} UTC)" for name, at_ms in expiring[:NAMES_SHOWN])
        more = " …" if len(expiring) > NAMES_SHOWN else ""
        what = f"The last token of {counted(len(expiring), 'identity', 'identities')} expires within 7 days"
        yield Finding(True, f"{what}: {names}{more}. `wirelake identity rotate NAME` adds a new one.", is_warning=True)


def _writable(place: Path) -> bool:
    probe = place / ".wirelake-doctor"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError:
        return False
    return True


def _open_files() -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < OPEN_FILES_MIN:
        text = f"At most {limit} files may be open, one per connection: raise the limit with `ulimit -n 65536`."
        return Finding(False, text)
    return Finding(True, f"{limit} files may be open at once.")


def _listeners(settings: Settings) -> Iterator[Finding]:
    try:
        own = gateway_pid(Path(settings.data))
    except PermissionError:  # another user's folder: reported above
        own = None
    if own is not None:
        yield Finding(True, f"The gateway of this data folder is running as process {own}.")
        return
    taken = []
    for name in settings.listen.__struct_fields__:
        address = settings.address(name)
        if address is not None and not _free(address.host, address.port):
            taken.append(f"{name} ({address})")
    if taken:
        yield Finding(
            False,
            f"Addresses in use or not local: {', '.join(taken)}. Stop what listens there, or change [listen].",
        )
    else:
        yield Finding(True, "All listen addresses are free.")


def _free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
