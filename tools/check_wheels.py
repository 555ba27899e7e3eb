"""Builds every distribution, installs the wheels into a clean environment, runs README's examples.

Usage: ``python tools/check_wheels.py core plugins/fbgemm ...``

A wheel is made from the source distribution, as an installer without wheels would do it. The new
environment shares nothing with the one that runs this script, so what a distribution forgot to
declare or to pack is missing there. README.md marks the Python blocks to run with a line
``<!-- runnable -->`` in front; together they are one program, in README's order.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNNABLE = re.compile(r"^<!-- runnable -->\n+```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(*command: str | Path, cwd: Path) -> None:
    """Run ``command`` in ``cwd``, showing it; a failure ends the script."""
    print("+", *command, flush=True)
    subprocess.run(command, cwd=cwd, check=True)


def build(distributions: list[Path], target: Path) -> list[Path]:
    """The wheels of ``distributions``, built into ``target``."""
    for distribution in distributions:
        run(
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--outdir",
            target,
            distribution,
            cwd=ROOT,
        )
    return sorted(target.glob("*.whl"))


def install(wheels: list[Path], environment: Path) -> Path:
    """The Python of a new environment that holds ``wheels`` and what they depend on."""
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    pip = (python, "-m", "pip")
    run(*pip, "install", "--quiet", "--constraint", constraints, *wheels, cwd=environment)
    run(*pip, "check", cwd=environment)
    return python


def examples(readme: str) -> str:
    """The runnable blocks as one program whose line numbers are those of ``readme``."""
    program = [""] * len(readme.splitlines())
    for block in RUNNABLE.finditer(readme):
        lines = block[1].splitlines()
        first = readme.count("\n", 0, block.start(1))
        program[first : first + len(lines)] = lines
    return "\n".join(program).rstrip("\n") + "\n"


def main() -> None:
    """Check the distributions named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("distributions", nargs="+", type=Path)
    arguments = parser.parse_args()
    program = examples((ROOT / "README.md").read_text(encoding="utf-8"))
    if not program.strip():
        sys.exit("README.md has no block marked <!-- runnable -->: nothing would be checked")
    with tempfile.TemporaryDirectory(prefix="fusion-wheels-") as folder:
        workplace = Path(folder)
        wheels = build(arguments.distributions, workplace / "dist")
        python = install(wheels, workplace / "environment")
        script = workplace / "readme_examples.py"
        script.write_text(program, encoding="utf-8")
        # -I: neither the checkout nor a variable of this shell can lend a module.
        run(python, "-I", script, cwd=workplace)
    print(f"{len(wheels)} wheels installed, README's examples ran")


if __name__ == "__main__":
    main()
