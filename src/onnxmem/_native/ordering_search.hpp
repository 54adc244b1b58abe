// The order with the smallest peak that can be found in a given time, and what is proven about it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ordering_graph.hpp"
#include "ordering_layers.hpp"

namespace onnxmem::ordering {

struct Outcome {
  std::vector<int> order;
  Bytes peak, bound;  // no order has a smaller peak than `bound`
};

// The order in which nodes run that are listed in `wish`: each when it is ready, glued ones first. Fewer than all
// nodes if they wait for each other in a circle.
std::vector<int> settle(const Graph& graph, std::span<const int> wish);

// Each node right after those it needs, from the last node backwards.
std::vector<int> depth_first(const Graph& graph);

// `starts` are orders to begin with, besides some simple ones; the result is never worse than any of them.
Outcome best_order(const Graph& graph, const std::vector<std::vector<int>>& starts, std::uint64_t seed, Budget& budget);

}  // namespace onnxmem::ordering
