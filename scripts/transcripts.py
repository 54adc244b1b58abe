"""Write the transcripts of the README anew, from the commands in them.

    python scripts/transcripts.py FOLDER [--only VERB]

FOLDER holds the models that the commands name. A block that begins with `$ onnxmem` is run there if the line before it
says how much of the output is shown: `<!-- 24 lines -->`, or `<!-- all -->`. Run it on a quiet machine.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(
    r"<!-- (?P<shown>\d+ lines|all) -->\n```\n\$ (?P<command>onnxmem (?P<verb>\w+)(?:\\\n|[^\n])*)\n.*?\n```", re.DOTALL
)


def transcript(command: str, shown: str, folder: Path) -> str:
    """What the command prints, or its beginning."""
    words = shlex.split(command.replace("\\\n", " "))
    environment = {**os.environ, "NO_COLOR": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command}\nended with {done.returncode}: {done.stderr}")
    # Where the models lie is nobody's business.
    lines = done.stdout.replace(f"{folder.resolve()}/", "").rstrip().splitlines()
    if shown != "all" and len(lines) > (most := int(shown.split(maxsplit=1)[0])):
        lines = [*lines[:most], "…"]
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    """Run the commands one after the other; the file is written after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="a verb")
    given = parser.parse_args()

    def again(block: re.Match[str]) -> str:
        if given.only not in (None, block["verb"]):
            return block[0]
        print(block["command"], flush=True)
        text = transcript(block["command"], block["shown"], given.folder)
        return f"<!-- {block['shown']} -->\n```\n$ {block['command']}\n{text}\n```"

    README.write_text(BLOCK.sub(again, README.read_text()))


if __name__ == "__main__":
    main()
