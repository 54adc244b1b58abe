"""onnxmem: how much memory an ONNX model takes, why, and how to make it take less."""
