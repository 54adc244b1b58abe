"""Measurements that anyone can run again, and the models they are made on."""

import os

# Everything is measured as it is the first time: what earlier processes left is only for those who ask for it.
os.environ.setdefault("ONNXMEM_KEEP_PLANS", "0")
