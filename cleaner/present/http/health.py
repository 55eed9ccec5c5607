"""
Three health checks: is the daemon alive, is it ready, is it healthy?

- `/livez`, for a supervisor that restarts it: the process answers. A log that cannot be cleaned is no reason for that.
- `/readyz`, for a client that waits for it: settings and kernels are loaded, every log dir was looked at, and it is not
  stopping.
- `/healthz`, for people and monitors: all problems, in words. It is `503` only if something is stuck: a failed disk
  or a quarantined log is reported for alerts, and the daemon goes on with the rest.
"""

from __future__ import annotations

from http import HTTPStatus

from cleaner.base.json_values import described, format_json
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.policy.selection_context import DirCondition
from cleaner.present.http.message import Response
from cleaner.present.problems import problems_of
from cleaner.present.text import counted, printable


def live() -> Response:
    """Answer `/livez`."""
    return Response.words(HTTPStatus.OK)


def ready(snapshot: ServiceSnapshot) -> Response:
    """Answer `/readyz`."""
    if snapshot.state == "stopping":
        return Response.words(HTTPStatus.SERVICE_UNAVAILABLE, "stopping")
    if not snapshot.is_ready:
        return Response.words(HTTPStatus.SERVICE_UNAVAILABLE, "not ready: not every log dir was read yet")
    return Response.words(HTTPStatus.OK)


def healthy(snapshot: ServiceSnapshot) -> Response:
    """Answer `/healthz`, in JSON: `status` (`ok` or `failing`), `failures` behind a `503`, and `warnings`."""
    failures = [] if snapshot.is_progressing else [*map(printable, snapshot.stuck)] or ["nothing moves"]
    body = format_json(
        described(
            "health",
            {
                "status": "failing" if failures else "ok",
                "state": printable(snapshot.state),
                "failures": failures,
                "warnings": warnings(snapshot),
            },
        )
    )
    status = HTTPStatus.SERVICE_UNAVAILABLE if failures else HTTPStatus.OK
    return Response(f"{body}\n".encode(), "application/json", status)


def warnings(snapshot: ServiceSnapshot) -> list[str]:
    """Return the problems that do not stop the daemon, for the operator, one line each, the worst first."""
    lines = [problem.words for problem in problems_of(snapshot) if not problem.is_stuck]
    for view in snapshot.log_dirs:
        if view.condition is DirCondition.LOCKED:
            detail = f": {view.detail}" if view.detail else ""
            lines.append(f"log dir {view.path} is in use by another process{detail}")
    if snapshot.worker_deaths:
        lines.append(f"{counted(snapshot.worker_deaths, 'worker')} died of an internal error; others took over")
    if snapshot.config.needs_restart:
        lines.append(f"waiting for a restart: {', '.join(snapshot.config.needs_restart)}")
    return [printable(line) for line in lines]
