"""Old names of `wgpr.io.files`, until everything imports those."""

from wgpr.io.files import check_destination as require_place
from wgpr.io.files import replace_file as replacing
from wgpr.io.files import write_file as write_whole

__all__ = ["replacing", "require_place", "write_whole"]
