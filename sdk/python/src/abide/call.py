"""Updates as typed calls: the method that handles one says what it takes and what it answers."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Union, overload

from ._codec import Duration, NotJson, to_json
from .machine import Reply

P = ParamSpec("P")
R = TypeVar("R")


class Call(Generic[R]):
    """An update and its arguments, for ``update`` and ``send_update`` with options of their own::

        await abide.update(order, Call(Checkout.note, "fragile", times=2), request_id="r-7", wait=5)

    Without options the method is given as it is: ``abide.update(order, Checkout.note, "fragile", times=2)``.
    """

    @overload
    def __init__(
        self,
        method: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, Reply[R]]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def __init__(
        self, method: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    @overload
    def __init__(
        self, method: Callable[Concatenate[Any, Any, P], Reply[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    @overload
    def __init__(self, method: Callable[Concatenate[Any, Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    def __init__(self, method: Any, /, *args: Any, **kwargs: Any) -> None:
        called = getattr(method, "__qualname__", repr(method))
        name = getattr(method, "__abide_update__", None)
        if not isinstance(name, str):
            raise TypeError(f"{called} is not an update: mark the method with @update, or give the name of one")
        skip = 1 if inspect.ismethod(method) else 2
        takes = inspect.Signature(list(inspect.signature(method).parameters.values())[skip:])
        try:
            bound = takes.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{called}: {error}; it takes {takes}") from None
        self.name = name
        self.arguments: Any = to_json(bound.arguments)
        #: The type of its answer.
        self.kind: Any = _answer(method)

    def __repr__(self) -> str:
        return f"Call({self.name!r}, {self.arguments!r})"


def _answer(method: Callable[..., Any]) -> Any:
    """The type that a handler answers with; anything where it does not say."""
    try:
        kind = typing.get_type_hints(method).get("return", Any)
    except NameError:  # of a class that is defined inside a function
        return Any
    if typing.get_origin(kind) in (Union, types.UnionType):
        each = [_without_reply(one) for one in typing.get_args(kind)]
        return Any if Any in each else Union[tuple(each)]  # noqa: UP007
    return _without_reply(kind)


def _without_reply(kind: Any) -> Any:
    if kind is Reply:
        return Any
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Reply else kind


def prepared(what: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Call[Any], dict[str, Any]]:
    """What ``update`` was called with: the call, and the options."""
    if isinstance(what, str):
        return _by_name(what, *args, **kwargs)
    if isinstance(what, Call):
        return what, _options(*args, **kwargs)
    return Call(what, *args, **kwargs), {}


def _by_name(
    name: str, arguments: Sequence[Any] | Mapping[str, Any] = (), **options: Any
) -> tuple[Call[Any], dict[str, Any]]:
    if isinstance(arguments, str):
        raise NotJson(f"the arguments of update {name} are a list or a dict: write [{arguments!r}]")
    made: Call[Any] = Call.__new__(Call)
    made.name, made.arguments, made.kind = name, to_json(arguments), Any
    return made, _options(**options)


def _options(*, request_id: str | None = None, wait: Duration | Any | None = ...) -> dict[str, Any]:
    return {"request_id": request_id} if wait is ... else {"request_id": request_id, "wait": wait}
