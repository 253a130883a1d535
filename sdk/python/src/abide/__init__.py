"""Durable state machines, signals and events: client and worker for an abide server.

``Abide`` is the client; ``Worker`` runs machines (``Machine``, ``@step``, ``@update``), jobs (``@job``) and the tasks
of graphs (``@task``).
"""

from ._calling import StepTimeout
from ._code import Unreadable
from ._codec import Duration, NotJson
from .client import Abide, Target
from .contract import Arguments, Param, Signal
from .errors import (
    AbideError,
    Broken,
    Duplicate,
    Invalid,
    NoTarget,
    NotDone,
    NotYet,
    Problem,
    Refused,
    Rejected,
    Unauthorized,
    Unavailable,
    UpdateFailed,
)
from .function import Function, job, task
from .graph import Graph, GraphStep, input_, output
from .machine import Context, Machine, Reply, Retry, step, update
from .models import (
    Change,
    Child,
    End,
    EventRecord,
    GraphKept,
    HistoryEvent,
    Instance,
    Message,
    Published,
    Receipt,
    SignalRecord,
    Started,
    StartedOne,
    UpdateRecord,
    Wait,
    Waiter,
)
from .outcome import Event, Outcome, Start, continue_as_new, done, fail, next_, retry, stop
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Abide",
    "AbideError",
    "Arguments",
    "Broken",
    "Change",
    "Child",
    "Context",
    "Duplicate",
    "Duration",
    "End",
    "Event",
    "EventRecord",
    "Function",
    "Graph",
    "GraphKept",
    "GraphStep",
    "HistoryEvent",
    "Instance",
    "Invalid",
    "Machine",
    "Message",
    "NoTarget",
    "NotDone",
    "NotJson",
    "NotYet",
    "Outcome",
    "Param",
    "Problem",
    "Published",
    "Receipt",
    "Refused",
    "Rejected",
    "Reply",
    "Retry",
    "Signal",
    "SignalRecord",
    "Start",
    "Started",
    "StartedOne",
    "StepTimeout",
    "Target",
    "Unauthorized",
    "Unavailable",
    "Unreadable",
    "UpdateFailed",
    "UpdateRecord",
    "Wait",
    "Waiter",
    "Worker",
    "continue_as_new",
    "done",
    "fail",
    "input_",
    "job",
    "next_",
    "output",
    "retry",
    "step",
    "stop",
    "task",
    "update",
]
