// Is there an order whose peak stays within a cap? A search over sets of executed nodes, one layer per number of nodes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "ordering_graph.hpp"

namespace ordering {

// Ends a search at a time, or when asked to; cheap enough to be asked at every state.
class Budget {
 public:
  using Clock = std::chrono::steady_clock;
  Budget(double seconds, std::function<bool()> interrupted);
  bool over();

 private:
  Clock::time_point deadline_, next_question_;
  std::function<bool()> interrupted_;
  int countdown_ = 0;
  bool over_ = false;
};

enum class Direction { forward, backward };
enum class Verdict { found, impossible, unknown };

struct Answer {
  Verdict verdict;
  std::vector<int> order;  // if found
  Bytes next_cap;          // if impossible: the smallest cap for which that is not proven
};

// Keeps at most `width` states per layer; "impossible" is said only if none had to be dropped. Graphs with glued nodes
// are not searched backwards ("unknown").
Answer search_layers(const Graph& graph, Bytes cap, std::size_t width, std::uint64_t seed, Direction direction,
                     Budget& budget);

}  // namespace ordering
