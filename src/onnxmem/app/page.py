"""The script that the server runs for every tab and click. All of it is in modules, which are loaded once."""

from onnxmem.app.dashboard import main

main()
