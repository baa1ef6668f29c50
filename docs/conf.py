"""How Sphinx builds the site. `make docs` writes it into build/docs; it opens from disk and needs no network."""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS / "_ext"))

import fairveil  # noqa: E402

project = "fairveil"
author = "the fairveil contributors"
version = release = fairveil.__version__
project_copyright = "the fairveil contributors, Apache-2.0"

extensions = [
    "command_line",
    "curves",
    "myst_parser",
    "numpydoc",
    "offline",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_ext", "_templates", "tutorials", "**/*.ipynb"]
nitpicky = True
highlight_language = "none"

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autosummary_generate = True
templates_path = ["_templates"]
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
toc_object_entries_show_parents = "hide"
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": ["tutorials"],
    "gallery_dirs": ["auto/tutorials"],
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"__init__\.py",
    "within_subsection_order": "FileNameSortKey",
    "default_thumb_file": str(DOCS / "_static" / "report.png"),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "run_stale_examples": False,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "fairveil"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "fairveil"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 9,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
}
html_sidebars = {"index": []}
copybutton_exclude = ".linenos, .gp, .go"
suppress_warnings = ["config.cache"]
