"""How the site is built: `sphinx-build -W --keep-going -b html docs docs/_build/html`, without a network."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for commands.py and docstrings.py

project = "wgpr"
author = "the authors of wgpr"
version = release = version_of("wgpr")

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx_gallery.gen_gallery", "commands", "docstrings"]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py"]
default_role = "code"  # docstrings write `name`, as Markdown does

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings tell shapes
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "capture_repr": (),
    "min_reported_time": 60,
    "write_computation_times": False,
    "remove_config_comments": True,
}

html_theme = "furo"
html_title = f"wgpr {release}"
html_static_path = ["_static"]
html_css_files = ["wgpr.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
