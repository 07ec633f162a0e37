"""A headless Chromium, driven over its own debugging protocol: open a page, ask it, take its picture."""

import base64
import contextlib
import io
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request

import numpy as np

FLAGS = (
    "--headless --no-sandbox --use-angle=swiftshader --enable-unsafe-swiftshader --disable-quic "
    "--no-first-run --disable-background-networking --disable-component-update --disable-sync --mute-audio "
    "--disable-dev-shm-usage --remote-debugging-port=0 --window-size=1000,700 --allow-file-access-from-files"
)


def executable() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One tab. Use as a context manager. `offline` cuts the network off, loopback too."""

    def __init__(self, offline: bool = False):
        from websockets.sync.client import connect

        self.profile = tempfile.mkdtemp(prefix="jaxrbd-browser-")
        command = [executable(), *FLAGS.split(), f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        port = self._port()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            tabs = json.load(answer)
        address = next(t["webSocketDebuggerUrl"] for t in tabs if t["type"] == "page")
        self.socket = connect(address, max_size=2**28)
        self.count, self.problems = 0, []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        if offline:
            cut = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
            self.ask("Network.emulateNetworkConditions", **cut)

    def _port(self) -> int:
        for line in self.process.stderr:
            if "DevTools listening on" in line:
                return int(line.rsplit(":", 1)[1].split("/")[0])
        raise RuntimeError("Chromium ended before it listened")

    def ask(self, method: str, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=120))
            if message.get("id") == self.count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if message.get("method") == "Runtime.exceptionThrown":
                self.problems.append(message["params"]["exceptionDetails"].get("text", "exception"))

    def open(self, address: str) -> None:
        self.ask("Page.navigate", url=address)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(RuntimeError):  # the tab is between two pages
                if self.evaluate("document.readyState == 'complete' && location.href != 'about:blank'"):
                    return
            time.sleep(0.2)
        raise TimeoutError(f"{address} did not load")

    def evaluate(self, script: str):
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def text(self) -> str:
        return self.evaluate("document.body.innerText") or ""

    def wait_for(self, condition: str, seconds: float = 60.0) -> None:
        """Until a script gives something true."""
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition} is still false; the page says: {self.text()[:400]}")
            time.sleep(0.2)

    def click_text(self, word: str) -> None:
        """Click the innermost button or element that says just this."""
        script = (
            "(() => {const found = [...document.querySelectorAll('button, label, a, div, span')]"
            f".filter(e => e.innerText && e.innerText.trim() === {json.dumps(word)});"
            "const e = found[found.length - 1]; if (!e) return false; e.click(); return true;})()"
        )
        if not self.evaluate(script):
            raise LookupError(f"nothing on the page says {word!r}: {self.text()[:400]}")

    def type_beside(self, label: str, text: str) -> None:
        """Write into the number field of the row that a label begins."""
        script = (
            "(() => {const e = [...document.querySelectorAll('label, div, span')].filter(e => e.innerText && "
            f"e.innerText.trim() === {json.dumps(label)}).pop(); let row = e; while (row && "
            "!row.querySelector('input')) row = row.parentElement; "
            "const all = row.querySelectorAll('input'); const field = all[all.length - 1]; "
            "field.focus(); field.select(); return true;})()"
        )
        if not self.evaluate(script):
            raise LookupError(f"no field beside {label!r}")
        self.ask("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13)

    def picture(self, path=None) -> np.ndarray:
        """(height, width, 3); also written to `path`."""
        from PIL import Image

        data = base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])
        if path is not None:
            path.write_bytes(data)
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))

    def still(self, path=None, seconds: float = 60.0) -> np.ndarray:
        """A picture of a page that has come to rest: two in a row are equal, and not blank."""
        end, before = time.monotonic() + seconds, self.picture()
        while time.monotonic() < end:
            time.sleep(0.5)
            after = self.picture(path)
            if np.array_equal(before, after) and drawn(after):
                return after
            before = after
        return before

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.ask("Browser.close")
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


def drawn(picture: np.ndarray) -> bool:
    """Whether there is more on the page than a background: many colours in its middle."""
    h, w, _ = picture.shape
    middle = picture[h // 4 : 3 * h // 4, w // 6 : 2 * w // 3].reshape(-1, 3)
    return len(np.unique(middle // 8, axis=0)) > 20


def differs(a: np.ndarray, b: np.ndarray) -> float:
    """Share of the pixels, panel left out, that changed visibly."""
    w = a.shape[1] * 2 // 3
    return float((np.abs(a[:, :w].astype(int) - b[:, :w].astype(int)).max(-1) > 24).mean())
