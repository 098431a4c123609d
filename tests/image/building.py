"""Carries out our Dockerfile without Docker: every COPY and RUN of it, word by word.

Like Docker's, each stage has a root of its own that lies at the same place, so that the shebangs
and links one stage writes hold in the next. Unlike Docker's, that place is a folder: a path that
begins with `/` is moved there before a step is run. The base is the Python that runs the tests,
copied to where the official image has it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from .dockerfile import ROOT, Instruction, Stage, ours

#: A path of the image: at the begin of a word, or what a redirection or an assignment names.
ABSOLUTE = re.compile(r"(?<![\w./'*$-])/(?=[a-z])")
MINOR = f"python{sys.version_info.major}.{sys.version_info.minor}"
#: Of no use to a server, and large.
LEFT_BEHIND = ("test", "idlelib", "tkinter", "turtledemo", "site-packages", "dist-packages")


class Build:
    """One build; when it is made, `root` is the root of the last stage."""

    def __init__(self, folder: Path, context: Path = ROOT) -> None:
        self.root = folder / "root"
        self._stages = ours()
        self.final = self._stages[-1]
        self._context = context
        self._kept = folder / "stages"
        self._arguments: dict[str, str] = {}
        self._settings: dict[str, str] = {}
        self._place = self.root

    def run(self, **arguments: str) -> None:
        """Carry out every stage, with these build arguments."""
        for stage in self._stages:
            self._begin(stage)
            for step in stage.steps:
                self._do(step, arguments)
            if stage is not self.final:
                self._keep(stage)

    @property
    def command(self) -> list[str]:
        """What the container runs, its program looked up as a runtime does."""
        program, *rest = self.final.last("ENTRYPOINT").words + self.final.last("CMD").words
        found = shutil.which(program, path=self.environment["PATH"])
        assert found is not None, f"{program} is not on {self.environment['PATH']}"
        return [found, *rest]

    @property
    def environment(self) -> dict[str, str]:
        """What the container finds set: what the image sets, and nothing of this machine."""
        # The base's own linker would find the library of its Python by itself.
        base = self.root / "usr" / "local"
        return {"PATH": f"{base}/bin", "LD_LIBRARY_PATH": f"{base}/lib", **self._settings}

    def _begin(self, stage: Stage) -> None:
        self._arguments = {}
        self._settings = {}
        if (earlier := self._kept / stage.base).exists():
            lay(earlier, self.root)
        else:
            copy_python(self.root / "usr" / "local")
        self._place = self.root

    def _keep(self, stage: Stage) -> None:
        self._kept.mkdir(exist_ok=True)
        self.root.rename(self._kept / stage.name)

    def _do(self, step: Instruction, arguments: Mapping[str, str]) -> None:
        match step.verb:
            case "WORKDIR":
                self._place = Path(self._moved(step.body))
                self._place.mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(step)
            case "ARG":
                if step.body in arguments:
                    self._arguments[step.body] = arguments[step.body]
            case "ENV":
                self._set(step)
            case "RUN":
                self._run(step)
            case "LABEL" | "USER" | "EXPOSE" | "ENTRYPOINT" | "CMD":
                pass
            case other:
                raise AssertionError(f"nobody carries out {other} yet")

    def _copy(self, step: Instruction) -> None:
        *sources, target = step.words
        source_root = self._context
        if stage := step.flags.get("from"):
            source_root = self._kept / stage
        to = self._place / self._moved(target)
        for source in sources:
            what = source_root / source.removeprefix("/")
            if stage:
                lay(what, to)
            elif what.is_dir():
                shutil.copytree(what, to, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy2(what, to / what.name if target.endswith("/") else to)

    def _set(self, step: Instruction) -> None:
        for word in step.words:
            name, _, value = word.partition("=")
            self._settings[name] = self._moved(value).replace("$PATH", self.environment["PATH"])

    def _run(self, step: Instruction) -> None:
        done = subprocess.run(
            ["/bin/sh", "-c", self._moved(step.body)],
            cwd=self._place,
            env=self._while_building(),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"RUN {step.body}\n{done.stdout}\n{done.stderr}"

    def _while_building(self) -> dict[str, str]:
        # Of this machine, what tells pip where packages are; not what tells Python about itself.
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        path = f"{self.environment['PATH']}:/usr/bin:/bin"
        return {**ours, **self._arguments, **self._settings, "PATH": path}

    def _moved(self, text: str) -> str:
        return ABSOLUTE.sub(f"{self.root}/", text)


def lay(source: Path, target: Path) -> None:
    """Lay one tree over another, as a layer: nothing writes into a file that is there already."""
    shutil.copytree(source, target, symlinks=True, copy_function=os.link)


def copy_python(prefix: Path) -> None:
    """Put the Python that runs us where nobody who may read is kept out."""
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    ignore = shutil.ignore_patterns("config-*")

    def skip(folder: str, names: list[str]) -> set[str]:
        left = ignore(folder, names)
        return left | set(LEFT_BEHIND) if Path(folder) == library else left

    shutil.copytree(library, prefix / "lib" / MINOR, ignore=skip)
    for shared in Path(sys.base_prefix, "lib").glob("libpython*.so*"):
        shutil.copy2(shared, prefix / "lib")
    programs = prefix / "bin"
    programs.mkdir()
    # What runs in a virtual environment is a link to the real one.
    shutil.copy2(Path(sys.executable).resolve(), programs / MINOR)
    for name in ("python3", "python"):
        (programs / name).symlink_to(MINOR)
