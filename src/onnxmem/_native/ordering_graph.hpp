// What running nodes in some order costs. A Graph is a whole workload or a window of one: the nodes between two sets
// of executed nodes, numbered anew, with the memory they touch.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace onnxmem::ordering {

// Single sizes fit into 63 bits; their sums need not.
__extension__ using Bytes = __int128;

constexpr Bytes kUnlimited = Bytes{1} << 120;

// Rows of different length in two flat arrays.
struct Lists {
  std::vector<int> begin{0}, items;

  void add(std::span<const int> row) {
    items.insert(items.end(), row.begin(), row.end());
    begin.push_back(static_cast<int>(items.size()));
  }
  std::span<const int> operator[](int row) const {
    return {items.data() + begin[row], static_cast<std::size_t>(begin[row + 1] - begin[row])};
  }
  int size() const { return static_cast<int>(begin.size()) - 1; }
};

// Who appears in whose row, turned around.
Lists inverse(const Lists& rows, int count);

// A set of nodes as bits, in memory that somebody else owns.
struct Bits {
  std::uint64_t* words;
  bool has(int i) const { return words[i >> 6] >> (i & 63) & 1; }
  void set(int i) { words[i >> 6] |= std::uint64_t{1} << (i & 63); }
  void clear(int i) { words[i >> 6] &= ~(std::uint64_t{1} << (i & 63)); }
};

struct Graph {
  int nodes = 0;
  Lists before, after;   // per node: direct dependencies
  Lists reads, readers;  // storages per node, nodes per storage
  Lists writes;          // storages per node
  Lists pairs;           // per node: input, output, input, output … that may share memory, in preference order
  std::vector<Bytes> size, scratch;
  std::vector<int> writer;                   // per storage; -1: there before the first node
  std::vector<char> stays, takeable, glued;  // does it outlive these nodes; may it be taken over; runs when ready
  Bytes base = 0;                            // alive throughout, touched by none of these nodes

  // Derived by finish().
  std::vector<Bytes> needs, keeps;  // per node: outputs and scratch while it runs; outputs that live on after it
  Bytes start = 0, end = 0;         // alive before the first node, and after the last

  void finish();
};

struct Effect {
  Bytes during, after;  // live bytes while the node runs, and when it is done
};

// Evaluates single steps; holds room for the pairs chosen so far, so that nothing is allocated on the way.
class Steps {
 public:
  explicit Steps(const Graph& graph) : graph_(graph) {}
  // `done` has run and `live` bytes are alive: what does running `node` do?
  Effect run(Bits done, int node, Bytes live);
  // The same looking back: nothing in `undone` has run, `node` was the last one before it, `live` bytes are alive
  // after it; `after` is what was alive before it.
  Effect take_back(Bits undone, int node, Bytes live);

 private:
  template <bool Backward>
  Effect step(Bits moved, int node, Bytes live);
  const Graph& graph_;
  std::vector<std::pair<int, int>> chosen_;
};

// The most that is live at once when all nodes run in this order.
Bytes peak_of(const Graph& graph, std::span<const int> order);

// The problem of running only order[begin, end), when what comes before has run and the rest has not.
Graph window(const Graph& graph, std::span<const int> order, int begin, int end);

// The steps of a topological order after which every other order has run the same nodes.
std::vector<int> forced_steps(const Graph& graph, std::span<const int> order);

// Sets of nodes per node.
struct Relation {
  Relation(int rows, int columns);
  Bits operator[](int row) { return {words.data() + row * stride}; }
  std::size_t stride;
  std::vector<std::uint64_t> words;
};

// All direct and indirect dependencies of each node. `order` is topological.
Relation ancestors(const Graph& graph, std::span<const int> order);

// A bound on every order's peak: for each node, what must be alive while it runs.
Bytes node_bound(const Graph& graph, std::span<const int> order);

}  // namespace onnxmem::ordering
