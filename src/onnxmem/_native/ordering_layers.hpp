// Is there an order whose peak stays within a cap? A search over sets of executed nodes, one layer per number of nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "ordering_budget.hpp"
#include "ordering_graph.hpp"

namespace onnxmem::ordering {

enum class Direction { forward, backward };
enum class Verdict { found, impossible, unknown };

struct Answer {
  Verdict verdict;
  std::vector<int> order;  // if found
  Bytes next_cap;          // if impossible: the smallest cap for which that is not proven
};

// A search keeps at most `width` states per layer. If it must drop some, it either goes on with the best, or gives up
// at once because only a proof was wanted; "impossible" is said only if none was dropped.
enum class Effort { best, proof };

// Graphs with glued nodes are not searched backwards ("unknown").
Answer search_layers(const Graph& graph, Bytes cap, std::size_t width, Effort effort, Direction direction,
                     std::uint64_t seed, Budget& budget);

}  // namespace onnxmem::ordering
