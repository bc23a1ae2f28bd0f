"""The verdict that `wdport.verify` returns: its data, with methods that render them.

This is a separate module so that the reports import the data and the data no report.
"""

from __future__ import annotations

from datetime import UTC, datetime

from wdport.base.options import PathText
from wdport.parity import verdict
from wdport.parity.policy.judge import judge, read_terms
from wdport.parity.reports import render_html, render_markdown
from wdport.parity.reports.text import render_card, render_repr, render_text


class Verdict(verdict.Verdict):
    """The result of :func:`wdport.verify`; true if everything that had to be compared was compared and agrees, and
    every other requirement, such as a policy, is met.

    A notebook shows it as a short table. :meth:`summary` is the full report as text, :meth:`to_html` as a page.
    """

    def __repr__(self) -> str:
        return render_repr(self)

    def _repr_html_(self) -> str:
        """Return the verdict and its gates for notebooks, in HTML without style sheet or script."""
        return render_card(self)

    def summary(self) -> str:
        """Return the report that `wdport verify` prints: the verdict, every gate, faulty layers and the run."""
        return render_text(self)

    def under(self, policy: PathText | None = None, baseline: PathText | None = None) -> Verdict:
        """Return the verdict with a policy (TOML) and a baseline (JSON) applied.

        The same as ``wdport verify --policy --baseline``, without its check of known faults. Raises
        :class:`wdport.WdportError` for a file that is missing or invalid.
        """
        today = datetime.now(UTC).date()
        judged = judge(self, read_terms(policy, baseline, today), today)
        assert isinstance(judged, Verdict)
        return judged

    def to_html(self) -> str:
        """Return the report as one HTML page that needs no other file, as ``wdport verify --html`` writes it."""
        return render_html(self)

    def to_markdown(self) -> str:
        """Return the report as Markdown of at most a megabyte, as ``wdport verify --markdown`` writes it."""
        return render_markdown(self)
