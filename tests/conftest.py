"""Tests run as the book does: one thread, the seed given, data from the cache."""

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for `tools`, which is not installed

from tools.environment import notebook_environment  # noqa: E402

os.environ.update(notebook_environment())
# What a test makes up is no result for the status page.
os.environ["BOOK_STATUS"] = tempfile.mkdtemp(prefix="book-status-")
