"""Reports in a real browser: `make report-check`; no part of `make test`, since it takes Chromium and npm."""
