"""What a page costs: bytes on the wire, first paint, shifts, answers to the reader."""

import contextlib
import gzip
import threading
from pathlib import Path
from typing import ClassVar

from conftest import BELOW, Host

PACKED = {".html", ".css", ".js", ".svg", ".json", ".txt", ".xml"}

# "Slow 4G", as the measuring tools name it, and a phone's processor.
SLOW_4G = {
    "offline": False,
    "latency": 150,  # milliseconds
    "downloadThroughput": 1.6e6 / 8,  # bytes a second
    "uploadThroughput": 0.75e6 / 8,
}
PHONE = 4  # times slower than a desktop
DESKTOP = 1300  # what `SPEED` gives there; it is one half of Lighthouse's own measure

# How often, in tenths a second, a string of 10000 letters is put together.
SPEED = """() => {
    const start = performance.now(), letters = 10000;
    let count = 0;
    while (performance.now() - start < 300) {
        let text = '';
        for (let i = 0; i < letters; i++) text += 'a';
        if (text.length === letters) count++;
    }
    return count / 10 / 0.3;
}"""


class GzipHost(Host):
    """Packs text and lets the browser keep what it has, as GitHub Pages does."""

    protocol_version = "HTTP/1.1"
    packed: ClassVar[dict[str, bytes]] = {}
    fonts = threading.Event()  # cleared, fonts are kept back

    def do_GET(self):
        path = Path(self.translate_path(self.path.partition("?")[0]))
        if path.is_dir():
            path /= "index.html"
        if not path.is_file():
            self.send_error(404)
            return
        if path.suffix in {".woff", ".woff2"}:
            self.fonts.wait(timeout=10)
        body, packs = path.read_bytes(), path.suffix in PACKED
        if packs:
            key = str(path)
            if key not in self.packed:
                self.packed[key] = gzip.compress(body, 6)
            body = self.packed[key]
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        if packs:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)


GzipHost.fonts.set()


OBSERVE = """
window.seen = {lcp: 0, what: '', cls: 0, shifts: [], answers: []};
new PerformanceObserver(list => list.getEntries().forEach(e => {
    seen.lcp = e.startTime;
    seen.what = (e.element?.tagName || '') + ' ' + (e.element?.textContent || e.url)
        .trim().slice(0, 40);
})).observe({type: 'largest-contentful-paint', buffered: true});
new PerformanceObserver(list => list.getEntries().forEach(e => {
    if (e.hadRecentInput) return;
    seen.cls += e.value;
    e.sources.forEach(s => seen.shifts.push(
        [e.value.toFixed(3), s.node?.nodeName, s.node?.className,
         s.node?.textContent?.trim().slice(0, 30)].join(' ')));
})).observe({type: 'layout-shift', buffered: true});
new PerformanceObserver(list => list.getEntries().forEach(e => {
    if (e.interactionId) seen.answers.push(e.duration);
})).observe({type: 'event', durationThreshold: 16, buffered: true});
"""


class Meter:
    """A page of its own with counters; `open` loads an address and waits for rest."""

    def __init__(self, browser, width=1366, height=900, context=None, **options):
        self.context = context or browser.new_context(
            viewport={"width": width, "height": height}, **options
        )
        self.page = self.context.new_page()
        self.page.add_init_script(OBSERVE)
        self.cdp = self.context.new_cdp_session(self.page)
        self.cdp.send("Network.enable")
        self.cdp.on("Network.responseReceived", self.on_response)
        self.cdp.on("Network.loadingFinished", self.on_finished)
        self.reset()

    def close(self):
        """A page that is slowed down keeps a core busy for as long as it is open."""
        self.context.close()

    def reset(self):
        self.names, self.bytes = {}, {}

    def on_response(self, event):
        url = event["response"]["url"]
        self.names[event["requestId"]] = url.partition(BELOW)[2].partition("?")[0]

    def on_finished(self, event):
        name = self.names.get(event["requestId"], "?")
        self.bytes[name] = self.bytes.get(name, 0) + event["encodedDataLength"]

    def slow(self, network=True):
        """A phone's network and processor; a slow machine is slowed down less."""
        if network:
            self.cdp.send("Network.emulateNetworkConditions", SLOW_4G)
        rate = PHONE * self.page.evaluate(SPEED) / DESKTOP
        self.cpu = min(PHONE, max(1, rate))
        self.cdp.send("Emulation.setCPUThrottlingRate", {"rate": self.cpu})
        return self

    def open(self, address: str) -> dict:
        self.reset()
        self.page.goto(address, wait_until="load", timeout=60_000)
        self.page.evaluate("document.fonts.ready.then(() => 1)")
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(200)
        return self.page.evaluate("seen") | {"wire": sum(self.bytes.values())}
