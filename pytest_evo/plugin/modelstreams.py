"""Follows streamed answers of models while a test reads them.

A stream stays the object that the library made, of a class derived from its own, so
that all its methods and ``isinstance`` do what they did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import TypeAlias

from pytest_evo.plugin.modelcalls import ModelCall

_CALL = "_pytest_evo_model_call"
_kinds: dict[type, type] = {}
_Members: TypeAlias = dict[str, Any]


def is_stream(answer: Any) -> bool:
    """Whether an answer comes in parts."""
    return any(
        hasattr(type(answer), name) for name in ("__next__", "__anext__", "__aiter__")
    )


def follow(stream: Any, call: ModelCall) -> None:
    """Tell ``call`` of every part that is read; one that cannot be followed is left."""
    kind = type(stream)
    try:
        setattr(stream, _CALL, call)
        if kind not in _kinds:
            _kinds[kind] = _followed(kind)
        stream.__class__ = _kinds[kind]
    except (AttributeError, TypeError):  # a generator, slots
        return


def _followed(kind: type) -> type:
    members: _Members = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    for name, make in _METHODS.items():
        method = getattr(kind, name, None)
        if method is not None:
            members[name] = make(method)
    return type(kind)(kind.__name__, (kind,), members)


def _read(step: Callable[[], Any], call: ModelCall) -> Any:
    """The next part of a stream; ``call`` is told of it, or of how the stream ended."""
    __tracebackhide__ = True
    try:
        part = step()
    except StopIteration:
        call.ended()
        raise
    except BaseException as error:
        call.failed(error)
        raise
    call.part(part)
    return part


async def _aread(step: Callable[[], Awaitable[Any]], call: ModelCall) -> Any:
    """As :func:`_read`, for a stream that is awaited."""
    __tracebackhide__ = True
    try:
        part = await step()
    except StopAsyncIteration:
        call.ended()
        raise
    except BaseException as error:
        call.failed(error)
        raise
    call.part(part)
    return part


def _next(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def __next__(self: Any) -> Any:
        __tracebackhide__ = True
        return _read(lambda: method(self), getattr(self, _CALL))

    return __next__


def _anext(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def __anext__(self: Any) -> Any:
        __tracebackhide__ = True
        return await _aread(lambda: method(self), getattr(self, _CALL))

    return __anext__


def _iter(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def __iter__(self: Any) -> Any:
        parts = method(self)
        return parts if parts is self else _each(parts, getattr(self, _CALL))

    return __iter__


def _aiter(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def __aiter__(self: Any) -> Any:
        parts = method(self)
        return parts if parts is self else _aeach(parts, getattr(self, _CALL))

    return __aiter__


def _each(parts: Iterator[Any], call: ModelCall) -> Iterator[Any]:
    __tracebackhide__ = True
    while True:
        try:
            part = _read(parts.__next__, call)
        except StopIteration:
            return
        yield part


async def _aeach(parts: AsyncIterator[Any], call: ModelCall) -> AsyncIterator[Any]:
    __tracebackhide__ = True
    while True:
        try:
            part = await _aread(parts.__anext__, call)
        except StopAsyncIteration:
            return
        yield part


_METHODS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "__next__": _next,
    "__anext__": _anext,
    "__iter__": _iter,
    "__aiter__": _aiter,
}
