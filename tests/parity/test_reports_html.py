"""The HTML page: well formed, harmless, complete, and right where numbers are 0, infinite or missing."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from math import inf, nan

import pytest

from tests.parity.test_reports import HOSTILE, NOTHING, STEPS, failing, incomplete, passing
from wdport.compare.findings import fact, measure
from wdport.parity.reports import render_html
from wdport.parity.reports.charts import shade
from wdport.parity.reports.svg import SIZE, LinearAxis, LogAxis
from wdport.parity.verdict import Overlay, TapResult, Trajectory, Verdict

VOID = {"meta", "wbr", "br"}
ODD = replace(
    passing(),
    taps=tuple(TapResult(f"t{i}", "c", None, v, v, v) for i, v in enumerate((0.0, inf, nan, 5e-324, 1.7e308, 1e-10))),
    trajectories=(
        Trajectory("zeros", STEPS, (0.0,) * 50, (0.0,) * 50),
        Trajectory("one", (0,), (inf,), (nan,)),
        Trajectory("none", (), (), ()),
    ),
    overlays=(
        Overlay("huge", (-1.7e308, 1.7e308), (nan, inf)),
        Overlay("flat", (2.0,), (2.0,)),
        Overlay("uneven", (1.0, 2.0, 3.0), (1.0,)),
        Overlay("empty", (), ()),
    ),
)
EVERY = [passing(), failing(), incomplete(), ODD, NOTHING, replace(passing(), taps=passing().taps[:1])]


class Page(HTMLParser):
    """Everything that a page holds; fails where a tag is closed that is not open."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[tuple[str, str]] = []
        self._broken = False
        self.feed(render_html(verdict))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._broken = tag == "wbr"
        if not self._broken:  # it stands where a name may be broken, and is no part of it
            self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._broken:
            tag, before = self.words.pop()
            self.words.append((tag, before + data))
        else:
            self.words.append((self.open[-1] if self.open else "", data))
        self._broken = False

    def text(self, *within: str) -> list[str]:
        return [data for tag, data in self.words if tag in within]

    def heads(self) -> list[str]:
        return self.text("h2")

    def classes(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.tags if name in (attrs.get("class") or "").split()]


@pytest.mark.parametrize("verdict", EVERY)
def test_well_formed_and_in_need_of_nothing_else(verdict: Verdict) -> None:
    page = Page(verdict)
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == names.count("style") == names.count("h1") == 1
    assert not {"link", "img", "iframe", "object", "base", "form"} & set(names)
    held = {name for _, attrs in page.tags for name in attrs}
    assert not {"src", "href", "xlink:href", "srcset"} & held
    assert not [name for name in held if name.startswith("on")]
    style = "".join(page.text("style"))
    assert "url(" not in style
    assert "@import" not in style
    policy = next(attrs["content"] for tag, attrs in page.tags if "http-equiv" in attrs)
    assert policy is not None
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("verdict", EVERY)
def test_no_place_is_infinite_or_not_a_number(verdict: Verdict) -> None:
    for tag, attrs in Page(verdict).tags:
        if tag in ("path", "rect"):
            drawn = " ".join(attrs.get(name) or "" for name in ("d", "x", "y", "width", "height"))
            assert re.fullmatch(r"[MLh0-9 ]*", drawn), drawn


@pytest.mark.parametrize(
    ("verdict", "word"),
    [(passing(), "PASS"), (failing(), "FAIL"), (incomplete(), "INCOMPLETE"), (NOTHING, "INCOMPLETE")],
)
def test_the_verdict_is_the_headline(verdict: Verdict, word: str) -> None:
    page = Page(verdict)
    assert [data for tag, data in page.words if tag == "b"][0] == word  # noqa: RUF015
    assert page.classes(word.lower())[0] is not None
    assert page.text("title")[0].startswith(f"{word}: ")


def test_everything_of_the_run_is_there() -> None:
    verdict = passing()
    page = Page(verdict)
    words = " ".join(data for _, data in page.words)
    for tap in verdict.taps:
        assert tap.reference in page.text("td")
        assert len([tip for tip in page.text("title") if tip.startswith(f"{tap.reference}: ")]) == 2
    used = {measure.bound for gate in verdict.gates for measure in gate.measures}
    assert {name for name in verdict.bounds if name in page.text("td")} == used | {"leak"}
    for name in (*verdict.environment, *verdict.assumed, "checkpoint", "converted"):
        assert name in page.text("th", "td")
    for value in (*verdict.environment.values(), verdict.checkpoint, verdict.converted, *verdict.inputs):
        assert value in words
    assert len(page.classes("cell")) == len(verdict.taps)
    assert [head for head in page.heads() if head.startswith("Error along")] == [
        "Error along the depth", "Error along sampling runs"
    ]  # fmt: skip
    assert len([tip for tip in page.text("title") if tip.startswith("step ")]) == 100


def test_sections_without_anything_to_show_are_absent() -> None:
    heads = Page(incomplete()).heads()
    assert "Error along sampling runs" not in heads
    assert "Series by wavelet level" not in heads
    assert "Faulty layers" not in heads
    assert "Faulty layers" in Page(failing()).heads()
    assert Page(NOTHING).heads() == [
        "Gates", "What was compared", "Inputs", "Assumptions", "Environment", "Bounds in force"
    ]  # fmt: skip


def test_a_hostile_name_is_text_wherever_it_stands() -> None:
    verdict = replace(
        failing(),
        checkpoint=HOSTILE,
        converted=HOSTILE,
        inputs=(HOSTILE,),
        assumed={HOSTILE: HOSTILE},
        environment={HOSTILE: HOSTILE},
        bounds={HOSTILE: 1.0},
        overlays=(Overlay(HOSTILE, (1.0,), (1.0,)),),
        trajectories=(Trajectory(HOSTILE, STEPS, (1e-15,) * 50, (1e-7,) * 50),),
        parts=tuple(replace(part, name=HOSTILE) for part in failing().parts),
        gates=tuple(
            replace(
                gate,
                name=HOSTILE,
                title=HOSTILE,
                measures=tuple(measure(f"{HOSTILE}{at}", "ulp", 9.0, "table_ulp") for at in range(9)),
                facts=(fact(HOSTILE, HOSTILE),),
            )
            for gate in failing().gates
        ),
        causes={"block_2/norm": (HOSTILE,)},
    )
    text = render_html(verdict)
    page = Page(verdict)
    assert text.count("<script>") == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\ud800-\udfff]", text)
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in Page(failing()).tags}
    attributes = [{name for _, attrs in each.tags for name in attrs} for each in (page, Page(failing()))]
    assert attributes[0] == attributes[1]
    assert len([word for word in page.text("td") if "<script>alert(1)</script>" in word]) > 5


def test_a_fault_is_red_and_a_doubtful_layer_is_marked() -> None:
    page = Page(failing())
    styles = {kind: [attrs["class"] for attrs in page.classes(kind)] for kind in ("own", "fed", "single")}
    assert sorted(style for style in styles["own"] if style and "out" in style) == ["own out2", "own out3"]
    assert [style for style in styles["fed"] if style and "out" in style] == ["fed out3"]
    assert styles["single"] == ["single out0", "single out1", "single out3"]
    assert "own zero" in styles["own"]
    assert not Page(passing()).classes("single")
    assert len(Page(incomplete()).classes("doubted")) == 1
    assert not Page(passing()).classes("doubted")


@pytest.mark.parametrize(
    ("error", "style"),
    [
        (0.0, "zero"), (5e-324, "in0"), (1e-15, "in0"), (2e-15, "in1"), (5e-11, "in5"), (1e-10, "in5"),
        (1.1e-10, "out0"), (9e-9, "out0"), (2e-5, "out2"), (1.0, "out3"), (inf, "out3"), (nan, "out3"),
    ],
)  # fmt: skip
def test_shades(error: float, style: str) -> None:
    assert shade(error, 1e-10) == style


def test_log_axis_has_room_for_everything() -> None:
    axis = LogAxis.over([0.0, 1e-16, 1e-10, inf, nan])
    places = [axis.place(value) for value in (0.0, 1e-16, 1e-13, 1e-10, inf)]
    assert places == sorted(set(places))
    assert (places[0], places[-1]) == (0, SIZE)
    assert axis.place(nan) == SIZE
    assert [label for _, label in axis.ticks()] == ["0", "1e-16", "1e-14", "1e-12", "1e-10", "inf"]
    plain = LogAxis.over([1e-16, 1e-10])
    assert (plain.place(1e-16), plain.place(1e-10)) == (0, SIZE)


@pytest.mark.parametrize(
    "values", [[], [0.0], [inf], [nan], [1.0], [5e-324, 1.7e308], [-1.0, 1e-3], [0.0, 5e-324], [-1.7e308, 1.7e308]]
)
def test_axes_of_odd_values_stay_within_their_frame(values: list[float]) -> None:
    log, linear = LogAxis.over(values), LinearAxis.over(values)
    assert all(0 <= log.place(value) <= SIZE for value in values)
    assert all(0 <= place <= SIZE for place, _ in (*log.ticks(), *linear.ticks()))
    assert len(log.ticks()) <= 9
