"""What is published: an sdist and a wheel, as a user installs them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

SDK = Path(__file__).resolve().parents[1]


def test_the_package_builds_and_can_be_imported_from_its_wheel(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)], cwd=SDK, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    modules = {f"abide/{path.name}" for path in (SDK / "src" / "abide").iterdir() if path.is_file()}
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        assert modules <= names, modules - names
        assert "abide/py.typed" in names
        packed.extractall(tmp_path / "installed")
        (about,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = packed.read(about).decode()
    for field in ("License-Expression", "Requires-Python", "Description-Content-Type"):
        assert f"\n{field}: " in metadata, metadata
    with tarfile.open(sdist) as source:
        within = {name.partition("/")[2] for name in source.getnames()}
    assert {"pyproject.toml", "README.md", "src/abide/__init__.py"} <= within, within
    found = subprocess.run(
        [sys.executable, "-c", "import abide; print(abide.__file__)"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip().startswith(str(tmp_path)), found
