"""What can go wrong, by what the caller can do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong with an argument."""

    code: str
    """A stable word: ``missing``, ``unknown``, ``wrong_type``, ``null_not_allowed``, ``too_many`` …"""
    message: str
    """The same for people."""


def by_field(problem: Mapping[str, Any]) -> Mapping[str, Sequence[Problem]]:
    """What a server says is wrong, by field."""
    found = problem.get("validation_errors")
    if not isinstance(found, dict):
        return {}
    return {
        field: [Problem(str(each.get("code")), str(each.get("message"))) for each in problems]
        for field, problems in found.items()
    }


class AbideError(Exception):
    """Anything that a server answered, or did not.

    ``status`` is the HTTP status, if there was an answer, and ``problem`` the whole of its body.
    """

    status: int | None
    problem: Mapping[str, Any]

    def __init__(self, text: str, *, status: int | None = None, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.problem = problem or {}

    @property
    def limit(self) -> str | None:
        """The name of the limit that was exceeded, if that is why."""
        return self.problem.get("limit")

    @property
    def most(self) -> int | None:
        """What that limit allows."""
        return self.problem.get("most")

    @property
    def met(self) -> int | None:
        """The size or number that is over it, where the server knows it."""
        return self.problem.get("met")


class Rejected(AbideError):
    """A rule refused a signal, an update or an operation; it is recorded, and sending it again changes nothing."""

    @property
    def outcome(self) -> str:
        """What became of it: ``rejected_not_active``, ``rejected_unknown_signal`` …"""
        return str(self.problem.get("outcome", "rejected"))

    @property
    def reason(self) -> str | None:
        """Why: ``run_not_active``, ``unknown_signal`` …"""
        return self.problem.get("reason")

    @property
    def validation_errors(self) -> Mapping[str, Sequence[Problem]]:
        """What is wrong with the arguments, by field."""
        return by_field(self.problem)

    @property
    def current_id(self) -> int | None:
        """The run that is current, when an older one of its chain was addressed."""
        return self.problem.get("current_id")

    @property
    def command_id(self) -> int | None:
        """The record of the refusal, of a signal or of an update."""
        recorded: int | None = self.problem.get("command_id", self.problem.get("update_id"))
        return recorded


class NoTarget(AbideError):
    """There is nothing of that id, key or name."""


class Duplicate(AbideError):
    """The key is taken by another instance."""

    @property
    def holder(self) -> int:
        """The instance that holds the key."""
        return int(self.problem["id"])


class Invalid(AbideError):
    """The request itself is wrong; ``str(error)`` says how."""

    @property
    def validation_errors(self) -> Mapping[str, Sequence[Problem]]:
        """What is wrong, by field."""
        return by_field(self.problem)

    @property
    def problems(self) -> Sequence[Mapping[str, Any]]:
        """What is wrong with a graph: ``{step?, message}`` each."""
        found: Sequence[Mapping[str, Any]] = self.problem.get("problems") or []
        return found


class Unauthorized(AbideError):
    """The token is missing, unknown, or of a role that may not do this."""


class Unavailable(AbideError):
    """No server answered, or the one that did is full or has lost its database.

    ``unknown`` is true when the request may have been carried out all the same.
    """

    unknown: bool

    def __init__(
        self, text: str, *, unknown: bool = False, status: int | None = None, problem: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text, status=status, problem=problem)
        self.unknown = unknown


class Broken(AbideError):
    """The server met an error of its own."""


class NotDone(AbideError):
    """An instance ended otherwise than well: its result was asked for, and there is none."""

    def __init__(self, id: int, ended: str, last_error: str | None) -> None:
        super().__init__(f"instance {id} {ended}: {last_error}" if last_error else f"instance {id} {ended}")
        self.id = id
        self.ended = ended
        self.last_error = last_error


class NotYet(AbideError):
    """What was waited for did not come in that time; it may still."""


class UpdateFailed(AbideError):
    """An update was accepted, and its handler failed; nothing was changed."""

    def __init__(self, error: str, update_id: int | None, *, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(error, status=422, problem=problem)
        self.error = error
        self.update_id = update_id


class Refused(AbideError):
    """An outcome that the server would not store: too large, or of a form that it does not know."""
