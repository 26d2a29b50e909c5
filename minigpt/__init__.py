"""minigpt: the package that the book *The Quiet Parts* builds, one chapter at a time.

Every module without a leading underscore is generated from the chapter of the same
name: `minigpt.attention` from `chapters/02_attention.ipynb`, and so on. `minigpt.book`
is written by hand; it draws the book's figures and needs `pip install "minigpt[book]"`.

Importing `minigpt` touches neither the network nor the disk.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("minigpt")
except PackageNotFoundError:  # used from a checkout that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
