"""Graphs rewritten so that less is alive at once, bit for bit the same.

from onnxmem.rewriting.static import static_graph      # a model and shapes → a graph of known sizes
from onnxmem.rewriting.search import search            # that → a Rewriting, within a limit of extra work
from onnxmem.rewriting.rewriting import apply          # the model and a Rewriting → the rewritten model
"""
