"""Fail if installing minigpt would replace a package that a hosted notebook has loaded.

    pip install --dry-run --report plan.json "minigpt[book]"
    python tools/install_plan.py plan.json

A running kernel has numpy and torch in memory. If an install replaces them on disk, the
next import breaks until a restart, and torch may lose its GPU.
"""

import json
import re
import sys
from pathlib import Path

KEPT = re.compile(
    r"numpy|torch|torch(vision|audio)|triton|nvidia-.*|ipywidgets|ipykernel|ipython"
    r"|jupyter(-core|-client)|traitlets|pyzmq|tornado"
)


def changed(plan: dict) -> list[str]:
    """The packages in a pip report that must stay as they are, as name==version."""
    found = [item["metadata"] for item in plan["install"]]
    names = [(re.sub(r"[-_.]+", "-", m["name"]).lower(), m["version"]) for m in found]
    return sorted(f"{n}=={version}" for n, version in names if KEPT.fullmatch(n))


def main() -> int:
    plan = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    bad = changed(plan)
    print(f"install plan: {len(plan['install'])} packages, to replace: {bad or 'none'}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
