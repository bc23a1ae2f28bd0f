"""``python -m wdport``."""

import os
import sys
from contextlib import suppress

if __name__ == "__main__":
    with suppress(OSError):  # the current folder may be gone, which the command reports
        if not sys.flags.safe_path and sys.path[0] == os.getcwd():
            # Python has put the current folder first, where a file could replace a module that is imported later. The
            # command itself finds the user's modules there.
            del sys.path[0]
    from wdport.cli.main import run

    run()
