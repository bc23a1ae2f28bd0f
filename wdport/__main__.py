"""``python -m wdport``."""

from wdport.cli.main import run

if __name__ == "__main__":
    run()
