"""A headless Chromium, driven over two pipes by its DevTools protocol; nothing else is needed."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
"""Debian's package `chromium`; "" where there is none."""

OPTIONS = (
    "--headless",
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--disable-background-networking",
)


@dataclass(slots=True)
class Browser:
    """One tab. complaints: console messages, exceptions and requests beyond the page's own file."""

    to: BinaryIO
    back: BinaryIO
    session: str = ""
    sent: int = 0
    complaints: list[str] = field(default_factory=list)

    def open(self, file: Path, *, width: int, dark: bool) -> None:
        """The page at that many CSS pixels, when it is complete; complaints begin anew."""
        self.complaints.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url=file.as_uri())
        self._until("Page.loadEventFired")

    def evaluate(self, script: str) -> Any:
        """The script's value; it runs in the page, which itself has none."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """The whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.sent += 1
        message: dict[str, Any] = {"id": self.sent, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self.sent:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _until(self, event: str) -> None:
        while self._read().get("method") != event:
            pass

    def _read(self) -> dict[str, Any]:
        """The next message; events worth a complaint are kept on the way."""
        data = bytearray()
        while (byte := self.back.read(1)) != b"\0":
            if not byte:
                raise AssertionError("the browser is gone")
            data += byte
        message: dict[str, Any] = json.loads(data)
        method, params = message.get("method", ""), message.get("params", {})
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(params))
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith("file:") and url != "data:,":
                self.complaints.append(f"request: {url}")
        return message


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """folder: for the browser's profile. The process is ended with the context."""
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()

    def adopt() -> None:
        """The protocol's descriptors are 3 and 4."""
        read, write = os.dup(to_read), os.dup(back_write)
        os.dup2(read, 3)
        os.dup2(write, 4)

    process = subprocess.Popen(
        [PROGRAM, *OPTIONS, f"--user-data-dir={folder}"],
        preexec_fn=adopt,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(back_write)
    try:
        with os.fdopen(to_write, "wb") as to, os.fdopen(back_read, "rb", buffering=0) as back:
            found = Browser(to=to, back=back)
            target = found.call("Target.createTarget", url="about:blank")["targetId"]
            attached = found.call("Target.attachToTarget", targetId=target, flatten=True)
            found.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                found.call(f"{domain}.enable")
            yield found
    finally:
        process.kill()
        process.wait()
