"""What the pages need and the model does not: figures, diagrams, tables, panels.

Needs the extra `minigpt[book]`. Nothing here is imported by the model's own modules.
"""

try:
    import matplotlib  # noqa: F401
    from IPython import get_ipython  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"minigpt.book needs {error.name!r}, which is not installed. "
        'Install the extra that brings it: pip install "minigpt[book]"',
        name=error.name,
    ) from None

from minigpt.book import check, diagram
from minigpt.book.canvas import Diagram
from minigpt.book.explorable import Explorable, Slider
from minigpt.book.figures import COLORS, CYCLE, Figure, handle
from minigpt.book.live import panel, static, watch
from minigpt.book.quiz import quiz
from minigpt.book.setting import seeds, setting
from minigpt.book.tables import power_of_ten, table

__all__ = [
    "COLORS",
    "CYCLE",
    "Diagram",
    "Explorable",
    "Figure",
    "Slider",
    "check",
    "diagram",
    "handle",
    "panel",
    "power_of_ten",
    "quiz",
    "seeds",
    "setting",
    "static",
    "table",
    "watch",
]
