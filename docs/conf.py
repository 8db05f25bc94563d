"""How the site is built: `sphinx-build -W --keep-going -b html docs docs/_build/html`, without a network.

The pages are Markdown. `python docs/reference.py --write` makes those about commands and Python names.
"""

from importlib.metadata import version as version_of

project = "wgpr"
author = "the authors of wgpr"
version = release = version_of("wgpr")

extensions = ["myst_parser", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py"]

myst_heading_anchors = 3

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
