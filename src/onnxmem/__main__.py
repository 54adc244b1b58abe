"""`python -m onnxmem` is `onnxmem`."""

from onnxmem.cli import main

main()
