"""Execute the steps of the Dockerfile without Docker, each stage in an environment of its own.

    python3 .ci/dockerfile.py FOLDER

The base image of a stage becomes a fresh virtual environment of this Python, and its root the
folder.  Then the image's program is tested as `make wheel` tests the wheel.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Stage:
    """The state of an image while it is built."""

    root: Path
    folder: str = "/"
    settings: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    entry_point: list[str] = field(default_factory=list)

    @property
    def programs(self) -> Path:
        """The folder of pip and of what it installs."""
        return self.root / "environment" / "bin"

    def place(self, name: str) -> Path:
        """Return the path that a path of the image stands for."""
        return self.root / os.path.normpath(os.path.join(self.folder, name)).lstrip("/")

    def run(self, command: str) -> None:
        """Execute a command in the current folder of the image."""
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        place = self.place(".")
        place.mkdir(parents=True, exist_ok=True)
        # pip compiles nothing that is not used; for this option, "0" means that it is set.
        pip = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "1", "PIP_NO_COMPILE": "0"}
        settings = {**os.environ, **pip, **self.settings, "PATH": path}
        subprocess.run(["sh", "-ec", command], cwd=place, env=settings, check=True)

    def copy(self, sources: list[Path], target: str) -> None:
        """Copy files, and the content of folders, as COPY does."""
        place = self.place(target)
        for source in sources:
            if source.is_dir():
                unwanted = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, place, dirs_exist_ok=True, ignore=unwanted)
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(word.upper(), rest) for word, rest in pairs]


def build(text: str, folder: Path) -> Stage:
    """Execute all instructions and return the last stage."""
    stages: dict[str, Stage] = {}
    stage = Stage(folder)
    for word, rest in instructions(text):
        print(f"-- {word} {rest}", flush=True)
        if word == "FROM":
            name = rest.split()[2] if " AS " in rest else str(len(stages))
            stage = stages[name] = Stage(folder / name)
            subprocess.run([sys.executable, "-m", "venv", stage.programs.parent], check=True)
        elif word == "RUN":
            stage.run(re.sub(r"^(--mount=\S+\s+)+", "", rest))
        elif word == "COPY":
            *sources, target = shlex.split(rest)
            if sources[0].startswith("--from="):
                other = stages[sources[0].removeprefix("--from=")]
                stage.copy([other.root / s.lstrip("/") for s in sources[1:]], target)
            else:
                stage.copy([ROOT / s for s in sources], target)
        elif word == "WORKDIR":
            stage.folder = os.path.join(stage.folder, rest)
        elif word == "ENV":
            stage.settings.update([rest.split("=", 1)])
        elif word == "USER":
            stage.user = rest
        elif word == "ENTRYPOINT":
            stage.entry_point = json.loads(rest)
        elif word != "CMD":
            raise ValueError(f"{word}: not an instruction that this script knows")
    return stage


def main() -> None:
    """Build the image in a fresh folder and test its program."""
    folder = Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    image = build((ROOT / "Dockerfile").read_text("utf-8"), folder)
    assert image.user.split(":")[0] not in ("root", "0")
    program = image.programs / image.entry_point[0]
    subprocess.run([program, *image.entry_point[1:], "--version"], check=True)
    subprocess.run([image.programs / "python", "-I", ROOT / ".ci" / "smoke.py"], check=True)


if __name__ == "__main__":
    main()
