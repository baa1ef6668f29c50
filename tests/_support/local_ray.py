"""Stands in for Ray in one process: actors are objects, calls are made at once, and any of them can be lost at will."""

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class RayError(Exception): ...


class RayActorError(RayError): ...


class ObjectLostError(RayError): ...


class GetTimeoutError(RayError): ...


class RayTaskError(RayError):
    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


class LocalActor:
    """One object; `before` is called with the name of each method and may kill the actor."""

    def __init__(self, made: Any, log: list[tuple[Any, ...]]) -> None:
        self.shard, self._log, self.is_lost = made, log, False
        self.before: Callable[[str], None] = lambda name: None

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self._call(name, arguments))

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self._log.append((name, *arguments))
        self.before(name)
        if self.is_lost:
            return RayActorError()
        try:
            return getattr(self.shard, name)(*pickle.loads(pickle.dumps(arguments)))
        except Exception as problem:
            return RayTaskError(problem)


class LocalRay:
    """The part of the package ray that fairveil uses."""

    exceptions = SimpleNamespace(
        RayError=RayError,
        RayActorError=RayActorError,
        ObjectLostError=ObjectLostError,
        GetTimeoutError=GetTimeoutError,
        RayTaskError=RayTaskError,
    )
    cloudpickle = pickle

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.timeouts: list[float | None] = []
        self.options: dict[str, Any] = {}

    def remote(self, **options: Any) -> Callable[[type], Any]:
        self.options = options
        return lambda cls: SimpleNamespace(remote=lambda *arguments: LocalActor(cls(*arguments), self.calls))

    def put(self, value: Any) -> Any:
        return value

    def get(self, answer: Any, timeout: float | None = None) -> Any:
        self.timeouts.append(timeout)
        if isinstance(answer, RayError):
            raise answer
        return answer

    def kill(self, actor: LocalActor) -> None:
        actor.is_lost = True
