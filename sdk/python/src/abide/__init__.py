"""Durable state machines, signals and events: client and worker for an abide server.

``Abide`` is the client, and ``SyncAbide`` the one for code that is not async; ``Worker`` runs machines (``Machine``,
``@step``, ``@update``), jobs (``@job``) and the tasks of graphs (``@task``). ``abide.testing`` has a test kit.
"""

from ._calling import StepTimeout
from ._codec import Duration, NotJson, Unreadable
from ._outbox import Outbox, outbox
from .call import Call
from .client import Abide, StartOptions, Target
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
from .handle import Handle
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
from .outcome import Event, Outcome, Start, block, continue_as_new, done, fail, next_, retry, stop
from .sync import SyncAbide, SyncHandle
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Abide",
    "AbideError",
    "Arguments",
    "Broken",
    "Call",
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
    "Handle",
    "HistoryEvent",
    "Instance",
    "Invalid",
    "Machine",
    "Message",
    "NoTarget",
    "NotDone",
    "NotJson",
    "NotYet",
    "Outbox",
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
    "StartOptions",
    "Started",
    "StartedOne",
    "StepTimeout",
    "SyncAbide",
    "SyncHandle",
    "Target",
    "Unauthorized",
    "Unavailable",
    "Unreadable",
    "UpdateFailed",
    "UpdateRecord",
    "Wait",
    "Waiter",
    "Worker",
    "block",
    "continue_as_new",
    "done",
    "fail",
    "input_",
    "job",
    "next_",
    "outbox",
    "output",
    "retry",
    "step",
    "stop",
    "task",
    "update",
]
