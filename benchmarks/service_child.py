"""`wgpr serve` with frequent snapshots, for `killable_service`: the child of the benchmarks of the service.

    python benchmarks/service_child.py SECONDS FOLDER [options of wgpr serve]

SECONDS are those between two snapshots of a map. Processes that learn import this module too, so it imports little.
"""

import sys

if __name__ == "__main__":
    from wgpr.cli.app import main
    from wgpr.service import catalogue, livemap

    seconds = float(sys.argv.pop(1))
    livemap._SNAPSHOT_SECONDS, catalogue._TICK = seconds, min(1.0, seconds / 4)
    sys.argv[:1] = ["wgpr", "serve"]
    main()
