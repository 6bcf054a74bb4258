"""Install the wheel of dist/ with the oldest and the newest supported Python, and test it there.

    python .ci/release.py FOLDER

The supported versions are those of pyproject.toml. Whatever of them the PATH has is used, and the
ends that it does not have are named: a release that was tested with fewer should be known as such.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def supported() -> list[str]:
    """Read the versions of Python that pyproject.toml names, oldest first."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    return re.findall(r'^  "Programming Language :: Python :: (3\.\d+)",$', text, re.MULTILINE)


def works(version: str) -> bool:
    """Whether the PATH has this Python; it is started, since a shim may stand for none."""
    question = f"import sys, venv; sys.exit(sys.version_info[:2] != ({version.replace('.', ', ')}))"
    try:
        return not subprocess.run(
            [f"python{version}", "-c", question], capture_output=True, check=False
        ).returncode
    except OSError:
        return False


def ends(versions: list[str]) -> list[str]:
    """Choose the oldest and the newest Python of the PATH, and name those it lacks."""
    found = [version for version in versions if works(version)]
    missing = [version for version in versions if version not in found]
    if not found:
        sys.exit(f"none of python{', python'.join(versions)} is on the PATH: nothing was tested")
    if missing:
        print(f"not on the PATH: python{', python'.join(missing)}", flush=True)
    return list(dict.fromkeys([found[0], found[-1]]))


def main() -> None:
    """Test the wheel in environments that have nothing else, not even pip."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    versions = supported()
    tested = ends(versions)
    for version in tested:
        folder = Path(sys.argv[1]) / f"python{version}"
        python = folder / "bin" / "python"
        make = [f"python{version}", "-m", "venv", "--clear", "--without-pip", str(folder)]
        install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        subprocess.run(make, check=True)
        subprocess.run([*install, "--no-compile", str(wheel)], check=True)
        print(f"python{version}, an environment with the wheel alone:", flush=True)
        subprocess.run([python, "-I", str(ROOT / ".ci" / "smoke.py")], check=True)
    missing = [version for version in (versions[0], versions[-1]) if version not in tested]
    lacks = f"; not tested: the supported end {', '.join(missing)}" if missing else ""
    print(f"{wheel.name}: ready, tested with Python {' and '.join(tested)}{lacks}")


if __name__ == "__main__":
    main()
