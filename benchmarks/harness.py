"""Contenders side by side: every one in its own process, timed in turns, each one's best taken.

Times on a shared machine wander by tens of percent within seconds. Alternating the contenders round after
round and taking the minimum of each exposes them to the same weather; nothing else may run meanwhile.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent


class Failed(RuntimeError):
    """A contender that could not do what it was asked."""


@dataclass(frozen=True)
class Contender:
    """A library with the settings it runs under.

    spread: one XLA device per core, or as many as `devices`; fusion: XLA's multi-output fusion, as
    `jaxrbd.configure_cpu` sets it; double: float64 where JAX computes; processes: a process per core; env:
    environment variables, in place before it starts.
    """

    name: str
    settings: str
    spread: bool = False
    fusion: bool = False
    double: bool = False
    processes: bool = False
    devices: int | None = None
    env: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        return f"{self.name} ({self.settings})" if self.settings else self.name


class Worker:
    """The process of one contender; `ask` sends a request and waits for the answer, but not for ever."""

    patience = 300.0

    def __init__(self, contender: Contender):
        self.contender = contender
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed with the worker
        names = ("spread", "fusion", "double", "processes", "devices")
        options = json.dumps({k: getattr(contender, k) for k in names})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", contender.name, options],
            cwd=ROOT,
            env={
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "JAX_TRACEBACK_FILTERING": "off",
                **dict(contender.env),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def ask(self, **request) -> dict:
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], self.patience)
            line = self.process.stdout.readline() if ready else None
        except BrokenPipeError:
            line = ""
        if line is None:
            self.process.kill()
            self.process.wait()
            raise Failed(f"{self.contender.label} gave no answer within {self.patience:.0f} s")
        if not line:
            code = self.process.wait()
            self.errors.seek(0)
            last = (self.errors.read().strip().splitlines() or ["no message"])[-1]
            raise Failed(f"{self.contender.label} died with exit code {code}: {last}")
        reply = json.loads(line)
        if "error" in reply:
            raise Failed(f"{self.contender.label}: {reply['error'].strip().splitlines()[-1]}")
        return reply

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


@dataclass(frozen=True)
class Entry:
    """What one contender is to do in a race."""

    contender: Contender
    task: str
    batch: int
    steps: int = 1

    @property
    def key(self) -> str:
        return f"{self.task}, batch {self.batch}"


@dataclass
class Result:
    """What a contender achieved: best seconds per state and best seconds of compiling."""

    entry: Entry
    seconds: float = float("inf")
    compile: float = float("inf")

    @property
    def contender(self) -> Contender:
        return self.entry.contender

    @property
    def task(self) -> str:
        return self.entry.task


@dataclass
class Arena:
    """Starts workers when they are first needed and remembers who failed at what."""

    rounds: int
    seconds: float
    workers: dict[Contender, Worker] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for worker in self.workers.values():
            worker.close()

    def start(self, contenders):
        """Start these together, so that they load their libraries in parallel, before any clock runs."""
        for contender in contenders:
            self.workers[contender] = Worker(contender)
        for contender in contenders:
            self.ask(contender, "start", op="hello")

    def compete(
        self, contenders, task: str, robot: str, batch: int, steps=1, recompile=0, timed=True
    ) -> list[Result]:
        """Best times of all who can do the task; a contender that fails is left out and recorded."""
        entries = [Entry(contender, task, batch, steps) for contender in contenders]
        return self.race(entries, robot, recompile, self.rounds if timed else 0)

    def race(self, entries, robot: str, recompile: int = 0, rounds: int | None = None) -> list[Result]:
        """Best times of all entries, which may be different tasks; they take turns, `recompile` times
        compiling and `rounds` times running (0: compiling only)."""
        rounds = self.rounds if rounds is None else rounds
        results = []
        for entry in entries:
            request = {"key": entry.key, "task": entry.task, "batch": entry.batch, "steps": entry.steps}
            what = f"{entry.task}, {robot}, batch {entry.batch}"
            reply = self.ask(entry.contender, what, op="prepare", robot=robot, **request)
            if reply is not None:
                results.append(Result(entry, compile=reply.get("compile", float("inf"))))
        for _ in range(recompile):
            for result in results:
                reply = self.turn(result, robot, op="compile")
                result.compile = min(result.compile, reply.get("compile", float("inf")))
        for _ in range(rounds):
            for result in results:
                reply = self.turn(result, robot, op="time", seconds=self.seconds)
                result.seconds = min(result.seconds, reply.get("seconds", float("inf")))
        for result in results:
            self.ask(result.contender, "drop", op="drop", key=result.entry.key)
        return [r for r in results if np.isfinite(r.seconds) or not rounds]

    def turn(self, result: Result, robot: str, **request) -> dict:
        """The answer to one request about a prepared entry; empty after a failure."""
        what = f"{result.task}, {robot}"
        return self.ask(result.contender, what, key=result.entry.key, **request) or {}

    def store(self, contender: Contender, task: str, robot: str, batch: int, path: str) -> list | None:
        """The arrays that a contender answers with, in the order of its leaves; `path` serves in between."""
        entry = Entry(contender, task, batch)
        request = {"key": entry.key, "task": task, "batch": batch, "steps": 1}
        if self.ask(contender, f"{task}, {robot}", op="prepare", robot=robot, **request) is None:
            return None
        if self.ask(contender, f"{task}, {robot}", op="store", key=entry.key, path=path) is None:
            return None
        self.ask(contender, "drop", op="drop", key=entry.key)
        with np.load(path) as file:
            return [file[name] for name in file.files]

    def ask(self, contender: Contender, what: str, **request) -> dict | None:
        """The worker's answer, or None after its failure, which is recorded."""
        worker = self.workers.get(contender)
        if worker is None:  # it died before, and that was recorded
            return None
        try:
            return worker.ask(**request)
        except Failed as failure:
            self.failures.append(f"{what}: {failure}")
            if worker.process.poll() is not None:
                worker.close()
                del self.workers[contender]
            return None


def best_of(results: list[Result], name: str, key: str = "seconds") -> Result | None:
    """The settings that suited contender `name` best."""
    mine = [r for r in results if r.contender.name == name]
    return min(mine, key=lambda r: getattr(r, key), default=None)
