"""Answers what is asked of a service that a client provides."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from wirelake.clients.values import contents_of, value_of
from wirelake.errors import AnswerError, EncodeError, InputError, StateError, TranslationError
from wirelake.limits import CLIENT_SERVED_MAX
from wirelake.message import Failure, Kind, Message, Operation

_log = logging.getLogger(__name__)
FAULT: Final = 500  # the provider's own


class ServiceRequest(Struct, frozen=True):
    """What somebody asks, by whatever protocol."""

    service: str
    op: str
    value: Any = None  # fields as a dict, bytes, or one plain value: see `values.py`
    object: str = ""


class ServiceError(AnswerError):
    """Raise it in a handler: the asker gets this as the reason why not."""

    def __init__(self, text: str, code: int = FAULT) -> None:
        super().__init__(text, code)


class AnswerPackets(Struct, frozen=True):
    """An answer in several packets, each a value of its own."""

    values: Sequence[Any]


Handler = Callable[[ServiceRequest], Awaitable[Any]]
Say = Callable[[Message], None]


class ProvidedServices:
    """By name, each with its handler. `say` may raise StateError where the connection is gone: then nobody waits."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._handlers: dict[str, Handler] = {}
        self._groups: dict[str, str] = {}
        self._working: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> list[tuple[str, str]]:
        """Each with its group, which may be empty."""
        return [(service, self._groups[service]) for service in self._handlers]

    def add(self, service: str, handler: Handler, group: str = "") -> None:
        if service in self._handlers:
            raise InputError(f"{service!r} is provided already")
        self._handlers[service] = handler
        self._groups[service] = group

    def remove(self, service: str) -> None:
        self._handlers.pop(service, None)
        self._groups.pop(service, None)

    def asked(self, message: Message) -> None:
        """A request of the gateway's: it is worked on in a task, so that a slow one does not hold up the others."""
        target = message.target
        handler = self._handlers.get(target.service) if isinstance(target, Operation) else None
        if not isinstance(target, Operation) or handler is None:
            self._answer(message, [_failed("not served here", 404)])
        elif len(self._working) >= CLIENT_SERVED_MAX:
            self._answer(message, [_failed(f"{CLIENT_SERVED_MAX} requests are being handled already", 429)])
        else:
            request = ServiceRequest(target.service, target.op, value_of(message), target.object)
            task = asyncio.create_task(self._work(message, request, handler))
            self._working.add(task)
            task.add_done_callback(self._working.discard)

    async def close(self) -> None:
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _work(self, message: Message, request: ServiceRequest, handler: Handler) -> None:
        try:
            found = await handler(request)
            values = found.values if isinstance(found, AnswerPackets) else [found]
            answers = [contents_of(value) for value in values] or [contents_of(None)]
        except AnswerError as refused:
            answers = [_failed(refused.text, refused.code)]
        except Exception:  # noqa: BLE001 a fault of the handler's is an answer too
            _log.exception("handler of service %s failed", request.service)
            answers = [_failed("the service failed", FAULT)]
        self._answer(message, answers)

    def _answer(self, message: Message, answers: list[dict[str, Any]]) -> None:
        if message.kind is not Kind.REQUEST:
            return  # an event: nobody waits for an answer
        for place, contents in enumerate(answers):
            more = len(answers) - place - 1
            answer = Message(kind=Kind.RESPONSE, correlation=message.correlation, more=more, **contents)
            try:
                self._say(answer)
            except (TranslationError, EncodeError) as fault:
                _log.error("cannot encode the response of a service: %s", fault)
                self._say(Message(kind=Kind.RESPONSE, correlation=message.correlation, **_failed(str(fault), FAULT)))
                return
            except StateError as gone:
                _log.info("response dropped: %s", gone)
                return


def _failed(text: str, code: int) -> dict[str, Any]:
    return {"failure": Failure(text, code)}
