"""Several processes or machines as one JAX program, with a roll call that says who is missing."""

from __future__ import annotations

import contextlib
import math
import socket
import time

import jax

from jaxrbd.devices import started
from jaxrbd.errors import ArgumentError, RbdError


def connect_hosts(
    address: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    timeout: float = 120.0,
) -> None:
    """Join the processes of a program that runs on several hosts; call it before JAX computes anything.

    Every process runs the same program and passes the same `address` ("host:port" of process 0, any free
    port there), the same number of `processes`, and its own number `process`. `jax.devices()` are then the
    devices of all of them, and `spread` uses them all. A process that is missing after `timeout` seconds,
    or that disagrees, is an error in every process.

    Without arguments JAX asks the launcher (Slurm, Open MPI, Kubernetes, Cloud TPU) for all three. Then,
    and once connected, jaxlib ends a process that misses another one instead of raising an error.
    """
    if started() or jax.distributed.is_initialized():
        raise ArgumentError(
            "connect_hosts: JAX has started. Call connect_hosts once, before any computation."
        )
    given = (address, processes, process)
    if given == (None, None, None):
        try:
            jax.distributed.initialize(initialization_timeout=math.ceil(timeout))
        except (ValueError, TypeError, RuntimeError) as error:
            remedy = "Pass address, processes and process."
            raise ArgumentError(
                f"connect_hosts: no launcher told JAX where it is ({error}) {remedy}"
            ) from error
        return
    host, _, port = str(address).rpartition(":")
    if (
        not (isinstance(processes, int) and isinstance(process, int) and 0 <= process < processes)
        or not host
        or not port.isdigit()
    ):
        raise ArgumentError(
            f"connect_hosts: found address {address!r}, process {process!r} of {processes!r}, expected "
            "'host:port' and integers 0 <= process < processes. Pass all three, or none under a launcher "
            "that knows them."
        )
    # jaxlib aborts when a process is missing or the port is taken, so call the roll first
    if process == 0:
        _call_roll(int(port), processes, timeout)
    else:
        _answer_roll(host.strip("[]"), int(port), processes, process, timeout)
    jax.distributed.initialize(*given, initialization_timeout=max(60, math.ceil(timeout)))


def _call_roll(port: int, processes: int, timeout: float) -> None:
    """Process 0 waits for the others to report and sends each the verdict: "go", or what is wrong."""
    end = time.monotonic() + timeout
    ipv6 = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=ipv6)
    except OSError as error:
        raise RbdError(
            f"connect_hosts: cannot listen on port {port} ({error}). Choose a free port."
        ) from error
    reports: list[tuple[str, socket.socket]] = []
    with server:
        while len(reports) < processes - 1 and (left := end - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                peer = server.accept()[0]
                peer.settimeout(min(left, 5))
                greeting, _, report = peer.makefile().readline(64).partition(" ")
            except (OSError, ValueError):  # nobody came, or a stranger
                continue
            if greeting == "jaxrbd":
                reports.append((report.strip(), peer))
    found = sorted(report for report, _ in reports)
    good = found == sorted(f"{i} of {processes}" for i in range(1, processes))
    wrong = (
        f"connect_hosts: process 0 expected all of 1 to {processes - 1} of {processes} within {timeout:g} s, "
        f"found {', '.join(found) or 'none'}. Start each with the same address, its own number, "
        "or raise timeout."
    )
    for _, peer in reports:
        with contextlib.suppress(OSError), peer:
            peer.sendall(f"jaxrbd {'go' if good else wrong}\n".encode())
    if not good:
        raise RbdError(wrong)


def _answer_roll(host: str, port: int, processes: int, process: int, timeout: float) -> None:
    """Report to process 0 and wait for its verdict."""
    end = time.monotonic() + timeout
    cause = ""
    while (left := end - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=left) as peer:
                peer.sendall(f"jaxrbd {process} of {processes}\n".encode())
                peer.settimeout(left + 5)  # process 0 may wait as long, and knows more
                greeting, _, verdict = peer.makefile().readline().strip().partition(" ")
            if greeting == "jaxrbd" and verdict == "go":
                return
            if greeting == "jaxrbd":
                raise RbdError(verdict)
            cause = "another program answers"
        except (OSError, ValueError) as error:
            cause = str(error)
        time.sleep(0.1)
    raise RbdError(
        f"connect_hosts: process {process} found no process 0 at {host}:{port} within {timeout:g} s "
        f"({cause}). Check that process 0 runs, its address and the firewall, or raise timeout."
    )
