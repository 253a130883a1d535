"""Orders over HTTP with Django, in one file: plain views with the client that is not async, and a worker beside them.

``pip install django``, ``abide serve`` in one terminal, ``python examples/django_shop.py worker`` in another,
``python examples/django_shop.py runserver --noreload`` in a third, then::

    curl -X POST localhost:8000/orders/42 -d '{"item": "kettle"}'
    curl -X POST localhost:8000/orders/42/payment -d '{"amount": 100}'
    curl localhost:8000/orders/42/receipt

The worker comes first: it declares the machine, with the updates that it takes.

In a project the machine and the client live in a module of an app, and ``worker`` is a management command. Steps that
use the ORM are plain functions (``def``), which run in threads.
"""

import asyncio
import json
import sys
from dataclasses import dataclass, field

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from abide import (
    Context,
    Machine,
    NotYet,
    Outcome,
    Rejected,
    Signal,
    SyncAbide,
    Worker,
    done,
    step,
    stop,
    update,
)


@dataclass
class Order:
    item: str
    notes: list[str] = field(default_factory=list)


@dataclass
class Payment:
    amount: int
    by: str = "card"


class Checkout(Machine[Order], name="django-checkout"):
    paid = Signal("paid", Payment)

    @step
    def start(self, ctx: Context[Order]) -> Outcome:
        return ctx.wait_for(self.paid, timeout=3600, then=self.ship)

    @step
    def ship(self, ctx: Context[Order]) -> Outcome:
        if ctx.timed_out:
            return stop("payment never came")
        payment = ctx.awaited(self.paid)
        return done(f"{ctx.state.item} shipped, {payment.amount} paid by {payment.by}, {len(ctx.state.notes)} notes")

    @update
    def note(self, ctx: Context[Order], text: str) -> int:
        ctx.state.notes.append(text)
        return len(ctx.state.notes)


abide = SyncAbide()  # one for the process; threads share it


@csrf_exempt
@require_POST
def create(request: HttpRequest, number: int) -> HttpResponse:
    order = Order(json.loads(request.body)["item"])
    started = abide.start(Checkout, order, key=f"order:{number}", or_existing=True)
    return JsonResponse({"instance": started.id}, status=201)


@csrf_exempt
@require_POST
def pay(request: HttpRequest, number: int) -> HttpResponse:
    try:
        receipt = abide.signal(f"order:{number}", Checkout.paid, json.loads(request.body), dedup="payment")
    except Rejected as refused:
        return JsonResponse({"detail": str(refused)}, status=409)
    return JsonResponse({"outcome": receipt.outcome}, status=202)


@csrf_exempt
@require_POST
def note(request: HttpRequest, number: int) -> HttpResponse:
    return JsonResponse({"notes": abide.update(f"order:{number}", Checkout.note, request.GET["text"])})


@require_GET
def receipt(request: HttpRequest, number: int) -> HttpResponse:
    try:
        return JsonResponse({"receipt": abide.result(f"order:{number}", str, wait=5)})
    except NotYet as error:
        return JsonResponse({"detail": str(error)}, status=202)


urlpatterns = [
    path("orders/<int:number>", create),
    path("orders/<int:number>/payment", pay),
    path("orders/<int:number>/notes", note),
    path("orders/<int:number>/receipt", receipt),
]

if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        asyncio.run(Worker(machines=[Checkout]).run())
    else:
        hosts = ["127.0.0.1", "localhost"]
        settings.configure(SECRET_KEY="for this example", ROOT_URLCONF=__name__, ALLOWED_HOSTS=hosts)
        execute_from_command_line(sys.argv)
