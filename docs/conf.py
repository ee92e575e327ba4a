"""The documentation site: `make docs` builds it into docs/_build/html, with every warning an error."""

import os
import warnings

import matplotlib

from greenfold.version import __version__

matplotlib.use("Agg")
warnings.filterwarnings("ignore", message=".*non-interactive.*")  # plt.show() of the gallery

project = "greenfold"
author = "the greenfold developers"
version = release = __version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "live", "gallery/*.ipynb", "gallery/*.py", "gallery/*.md5"]
templates_path = ["_templates"]
default_role = "py:obj"  # `IGLRegressor` in a docstring is a link where there is such a page

# --- pages

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]

html_theme = "pydata_sphinx_theme"
html_title = "greenfold"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["live"]  # report pages, which `docs/live.py` writes
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
    "footer_start": [],
    "footer_end": [],
}
html_sidebars = {"index": [], "start": [], "choosing": [], "troubleshooting": []}

# --- reference

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say what is expected
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
add_module_names = False

# --- gallery

DATA = os.environ.get("GREENFOLD_DATA")
# Examples on data that is not shipped: run where it is at hand, otherwise their stored picture is shown.
STORED = ("plot_05_faces", "plot_06_which_inputs", "plot_few_labels")
RUN = r"plot_" if DATA else rf"plot_(?!{'|'.join(name.removeprefix('plot_') for name in STORED)})"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": RUN,
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 1,
    "abort_on_example_error": True,
    "backreferences_dir": None,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
}


def _stored_picture(app, docname, source):
    """Below an example that was not run: what it draws."""
    name = docname.removeprefix("gallery/")
    if name in STORED and not DATA:
        source[0] += (
            f"\n.. figure:: /images/gallery/{name}.png\n\n"
            "   What it draws, from an earlier run: the data are not shipped.\n"
        )


def _skipped(app, what, name, obj, skip, options):
    """Metadata routing of scikit-learn, which makes `set_…_request` for every method."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def _bars(app, what, name, obj, options, lines):
    """|x| in a docstring is a size, not a substitution: outside of literal blocks bars are escaped."""
    literal = None  # indentation of the line that opened the block
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if literal is None and not line.lstrip().startswith(">>>"):
            lines[i] = line.replace("|", r"\|")
            literal = indent if line.rstrip().endswith("::") else None


def setup(app):
    app.connect("autodoc-process-docstring", _bars, priority=900)
    app.connect("source-read", _stored_picture)
    app.connect("autodoc-skip-member", _skipped)
