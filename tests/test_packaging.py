"""What is released: the sdist has every tracked file, the wheel its data and types, and a tag what it must have."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

OPTIONAL = {"huggingface_hub": "hub", "torch": "torch", "matplotlib": "figures", "PIL": "video", "av": "video",
            "pyarrow": "parquet",
            "flatbuffers": "export", "orbax": "orbax", "tensorboardX": "tensorboard",
            "sklearn": "evaluation", "diffusers": "diffusers", "transformers": "transformers"}  # fmt: skip
"""Third-party modules that wdport imports with an extra alone, and the extra."""

NOT_OURS = {"pytest"}
"""What only the pytest plugin imports, which runs under it."""

FOR_JAX = {"filelock"}
"""What no module of wdport imports, and JAX does when wdport bounds its compile cache."""

CLASSIFIED = ["Programming Language :: Python :: 3.11", "Operating System :: POSIX :: Linux", "Typing :: Typed"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(wheel.read(name))


def tracked() -> set[str]:
    """The files that git tracks, or of an unpacked sdist those that are there."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        return {name for name in listed.decode().split("\0") if name and (ROOT / name).exists()}
    return {"wdport/py.typed", "wdport/parity/reports/templates/page.html", "pyproject.toml", "conftest.py",
            "parity.toml", ".ci/run", "examples/points/train.py", "tests/make.py"}  # fmt: skip


def test_the_sdist_has_every_tracked_file(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    assert sorted(tracked() - held) == []


def test_the_wheel_has_the_package_tables_and_the_plugin(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        held = set(wheel.namelist())
    package = {name for name in tracked() if name.startswith("wdport/")} | {"pytest_wdport.py"}
    assert sorted(package - held) == []
    tables = {f"wdport/_mappings/{path.name}" for path in (ROOT / "mappings").glob("*.yaml")}
    assert tables
    assert tables <= held
    top = {name.split("/")[0] for name in held}
    assert top == {"wdport", "pytest_wdport.py", f"wdport-{PROJECT['version']}.dist-info"}


def test_the_index_shows_a_readme_whose_links_lead_somewhere(metadata: Message) -> None:
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", text)
    assert links
    relative = [link for link in map("".join, links) if not re.match(r"https?:|mailto:|#", link)]
    assert relative == []
    ours = [link for link in map("".join, links) if "github.com/wdport/wdport/" in link]
    places = [link.partition(f"/v{PROJECT['version']}/")[2].partition("#")[0] for link in ours if "/blob/v" in link]
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_the_index_is_told_what_it_is(metadata: Message) -> None:
    assert set(CLASSIFIED) <= set(metadata.get_all("Classifier", []))
    urls = {url.partition(",")[0] for url in metadata.get_all("Project-URL", [])}
    assert urls >= {"Documentation", "Source", "Issues"}


def imported() -> Iterator[tuple[str, str]]:
    """Every third-party module that wdport imports, within functions too, and where."""
    for path in [*(ROOT / "wdport").rglob("*.py"), ROOT / "pytest_wdport.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in {"wdport", "pytest_wdport"}:
                    yield top, str(path.relative_to(ROOT))


def distribution(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[=<>!~;\s\[]", requirement, maxsplit=1)[0]).lower()


def test_what_is_imported_is_declared_and_nothing_else() -> None:
    homes = packages_distributions()
    needed: dict[str, str] = {}
    for module, place in imported():
        if module not in OPTIONAL and module not in NOT_OURS and module != "tensorflow":
            needed.setdefault(distribution(homes.get(module, [module])[0]), place)
    declared = {distribution(each) for each in PROJECT["dependencies"]}
    assert {name: needed[name] for name in needed.keys() - declared} == {}
    assert declared - needed.keys() == FOR_JAX
    assert set(OPTIONAL.values()) <= set(PROJECT["optional-dependencies"])


def test_constraints_fix_everything_that_is_asked_for() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    fixed = {distribution(line) for line in lines if line and not line.startswith("#")}
    assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", line) for line in lines if line and not line.startswith("#"))
    extras = PROJECT["optional-dependencies"]
    requirements = [*PROJECT["dependencies"], *extras["dev"], *extras["docs"]]
    assert {distribution(requirement) for requirement in requirements} - fixed == {"wdport"}


def test_no_upper_bound_is_guessed() -> None:
    """A cap needs a release that was seen to fail."""
    assert [each for each in PROJECT["dependencies"] if "<" in each or "==" in each] == []


def test_workflows_pin_every_action_and_publish_without_a_token() -> None:
    texts = {path.name: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    used = [line for text in texts.values() for line in text.splitlines() if "uses:" in line]
    assert used
    assert [line for line in used if not re.search(r"uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []
    jobs = yaml.safe_load(texts["release.yml"])["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert (jobs["publish"]["environment"], jobs["publish"]["needs"]) == ("pypi", "build")
    assert "secrets." not in texts["release.yml"]
    matrix = yaml.safe_load(texts["ci.yml"])["jobs"]["compat"]["strategy"]["matrix"]
    told = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert (matrix["python"], matrix["dependencies"]) == (told, ["lowest", "newest"])


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checkout(folder: Path, changelog: str, carried: str = "1.2.3") -> Path:
    (folder / "wdport" / "base").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "wdport"\nversion = "1.2.3"\n')
    (folder / "wdport" / "base" / "version.py").write_text(f'VERSION: Final = "{carried}"\n')
    (folder / "CHANGELOG.md").write_text(changelog)
    return folder


def test_a_release_has_its_section_of_the_changelog(release: ModuleType, tmp_path: Path) -> None:
    changelog = "# Changelog\n\n## 1.2.3 - 2026-11-22\n\n- New: a thing\n  of two lines.\n\n## 1.2.2\n\n- Old.\n"
    assert release.notes("v1.2.3", checkout(tmp_path, changelog)) == "- New: a thing\n  of two lines."
    assert release.notes(f"v{PROJECT['version']}", ROOT)


@pytest.mark.parametrize(
    ("tag", "changelog", "carried", "told"),
    [
        ("v1.2.4", "## 1.2.3\n\n- a\n", "1.2.3", "the tag must be v1.2.3"),
        ("1.2.3", "## 1.2.3\n\n- a\n", "1.2.3", "the tag must be v1.2.3"),
        ("v1.2.3", "## 1.2.2\n\n- a\n", "1.2.3", "CHANGELOG.md has no entry under '## 1.2.3'"),
        ("v1.2.3", "## 1.2.3\n\n## 1.2.2\n\n- a\n", "1.2.3", "CHANGELOG.md has no entry"),
        ("v1.2.3", "## 1x2.3\n\n- a\n", "1.2.3", "CHANGELOG.md has no entry"),
        ("v1.2.3", "## 1.2.3\n\n- a\n", "1.2.2", "different versions"),
    ],
)
def test_no_other_tag_is_released(
    release: ModuleType, tag: str, changelog: str, carried: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as refused:
        release.notes(tag, checkout(tmp_path, changelog, carried))
    assert told in str(refused.value)
