"""Online Gaussian process regression for fields that are not the same everywhere.

The public names are listed in `__init__.pyi`. Each is imported when it is first used (PEP 562), so that `import wgpr`
takes milliseconds.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
