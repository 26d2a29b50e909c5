"""The system's Chromium, for what needs a browser; none is ever downloaded."""

import os
import shutil
from pathlib import Path

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
)
NEEDED = "Chromium (Debian, Ubuntu: apt-get install chromium), or set CHROMIUM=path"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """Where it is: named in the environment, on the path, or in its usual place."""
    wanted = os.environ.get("CHROMIUM")
    if wanted:
        return wanted if Path(wanted).is_file() else shutil.which(wanted)
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return found or next((place for place in PLACES if Path(place).is_file()), None)
