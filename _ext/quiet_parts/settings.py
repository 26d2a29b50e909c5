"""Repository address from the environment, vendored libraries, page context."""

import os
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

from sphinx.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tools.stamp import Repository, StampError  # noqa: E402

ASSETS = ROOT / "_assets"
COPIED = r'class="(?:[^"]*\s)?(?:cell_input|highlight-shell)\b'
# Full screen, live code, Sphinx's search and its marks: the book has its own, or none.
NOT_USED = ("sphinx-book-theme", "doctools", "sphinx_highlight")
FOR_CODE = ("clipboard", "copybutton", "documentation_options")  # which they read
NEEDED = [
    "vendor/.build/node_modules/mathjax/es5/node-main.js",
    "vendor/.build/node_modules/speech-rule-engine/lib/sre.js",
    "vendor/html-manager/dist/embed.js",
    "vendor/source-serif/files/source-serif-4-latin-wght-normal.woff2",
    "vendor/.build/nanum-gothic/files/nanum-gothic-korean-400-normal.woff",
]


def setup(app):
    # Jupyter Book sets these for extensions that the book does not load.
    for name in ("comments_config", "bibtex_bibfiles"):
        app.add_config_value(name, None, "")
    app.connect("config-inited", read_settings, priority=1)
    app.connect("html-page-context", add_context, priority=400)
    app.connect("html-page-context", drop_unused, priority=900)  # after the themes
    app.add_js_file("quiet-parts/page.js", loading_method="defer")
    app.add_js_file("quiet-parts/progress.js", loading_method="defer")


def read_settings(app, config):
    missing = [name for name in NEEDED if not (ASSETS / name).is_file()]
    if missing:
        raise ConfigError(
            f"vendored libraries are missing in {ASSETS.name}: {', '.join(missing)}. "
            "Run: python tools/vendor.py"
        )
    config.html_static_path.append(str(ASSETS))
    options = config.html_theme_options
    for key in ("url", "branch"):
        value = os.environ.get(f"BOOK_REPOSITORY_{key.upper()}")
        if value:
            options[f"repository_{key}"] = value.rstrip("/")
    if not re.fullmatch(r"https?://[^/]+/.+/[^/]+", options["repository_url"]):
        raise ConfigError(
            f"the repository's address {options['repository_url']!r} should look like "
            "https://github.com/owner/name (repository.url in _config.yml, or "
            "BOOK_REPOSITORY_URL in the environment)"
        )
    # Sphinx writes each page's canonical address from it.
    config.html_baseurl = public_address(options) or ""
    config.notfound_urls_prefix = urlsplit(config.html_baseurl).path or "/"


def public_address(options: dict) -> str | None:
    """Where readers find the site: it follows from the repository on GitHub."""
    try:
        return Repository.parse(options["repository_url"]).pages
    except StampError:  # another host: nobody knows where it shows the pages
        return None


def repository_file(app, path: str) -> str:
    """The address at which a file of the repository can be read."""
    options = app.config.html_theme_options
    return f"{options['repository_url']}/blob/{options['repository_branch']}/{path}"


def add_context(app, pagename, templatename, context, doctree):
    options = app.config.html_theme_options
    context["repository"] = options["repository_url"]
    context["colab"] = context["notebook"] = None
    if pagename in app.env.found_docs:
        source = Path(app.env.doc2path(pagename)).name
        if source.endswith(".ipynb"):
            context["notebook"] = f"{pagename}.ipynb"
            context["colab"] = colab(app, f"{pagename}.ipynb")
    if any("html-manager" in str(getattr(s, "filename", "")) for s in scripts(context)):
        # The widgets' icon fonts would come from a foreign server otherwise.
        base = context["pathto"]("_static/vendor/html-manager/dist/", 1)
        body = f'window.__jupyter_widgets_assets_path__="{base}";'
        app.add_js_file(None, body=body, priority=10)


def scripts(context):
    return context.get("script_files", [])


def drop_unused(app, pagename, templatename, context, doctree):
    scripts(context)[:] = [s for s in scripts(context) if is_used(s, context)]


def is_used(script, context) -> bool:
    """Whether the page has something for the script to do."""
    name = str(getattr(script, "filename", None) or "")
    if any(word in name for word in FOR_CODE):
        return re.search(COPIED, context.get("body", "")) is not None
    if not name:  # two lines for the theme's search while typing, which is off
        return "DOCUMENTATION_OPTIONS" not in str(script.attributes.get("body", ""))
    return not any(word in name for word in NOT_USED)


def colab(app, path: str) -> str | None:
    """Where Colab opens a notebook of the repository, if it can."""
    options = app.config.html_theme_options
    base = options.get("launch_buttons", {}).get("colab_url")
    found = re.fullmatch(r"https://github\.com/(.+)", options["repository_url"])
    if not base or not found:
        return None
    branch = options["repository_branch"]
    return f"{base.rstrip('/')}/github/{found[1]}/blob/{branch}/{path}"
