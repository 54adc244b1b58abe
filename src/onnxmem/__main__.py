"""`python -m onnxmem`, and the installed command: Ctrl-C is a word also while the rest is still being loaded."""

import sys


def main() -> None:
    """Load the command line, and run it."""
    try:
        # That takes a moment, and on a busy machine more: before it, nothing stands ready to say what happened.
        from onnxmem.cli import main as run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        print("onnxmem: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(130)


if __name__ == "__main__":
    main()
