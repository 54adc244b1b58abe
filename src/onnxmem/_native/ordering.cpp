// The Python face of the order search. Flat lists in, an order out; the interpreter lock is released while it works.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "ordering_graph.hpp"
#include "ordering_layers.hpp"
#include "ordering_search.hpp"

namespace nb = nanobind;
using namespace onnxmem::ordering;

namespace {

using Rows = std::vector<std::vector<int>>;
using Wide = std::pair<std::int64_t, std::uint64_t>;  // a Python integer's high and low 64 bits

Wide wide(Bytes value) { return {static_cast<std::int64_t>(value >> 64), static_cast<std::uint64_t>(value)}; }
Bytes narrow(Wide value) { return (Bytes{value.first} << 64) | value.second; }

Lists lists(const Rows& rows, std::size_t count, std::size_t below) {
  if (rows.size() != count) throw std::invalid_argument("columns of different length");
  Lists flat;
  for (const auto& row : rows) {
    for (int item : row)
      if (item < 0 || static_cast<std::size_t>(item) >= below) throw std::invalid_argument("an index out of range");
    flat.add(row);
  }
  return flat;
}

Graph make_graph(const Rows& before, const Rows& readers, const std::vector<std::int64_t>& sizes,
                 const std::vector<int>& writers, const std::vector<bool>& stays, const std::vector<bool>& takeable,
                 const Rows& pairs, const std::vector<bool>& glued, const std::vector<std::int64_t>& scratch) {
  const std::size_t nodes = before.size(), storages = sizes.size();
  if (writers.size() != storages || stays.size() != storages || takeable.size() != storages || glued.size() != nodes ||
      scratch.size() != nodes)
    throw std::invalid_argument("columns of different length");
  Graph graph;
  graph.nodes = static_cast<int>(nodes);
  graph.before = lists(before, nodes, nodes);
  graph.after = inverse(graph.before, graph.nodes);
  graph.readers = lists(readers, storages, nodes);
  graph.reads = inverse(graph.readers, graph.nodes);
  Rows writes(nodes);
  for (std::size_t s = 0; s < storages; ++s) {
    if (writers[s] < -1 || writers[s] >= graph.nodes || sizes[s] < 0) throw std::invalid_argument("a wrong storage");
    if (writers[s] >= 0) writes[writers[s]].push_back(static_cast<int>(s));
  }
  graph.writes = lists(writes, nodes, storages);
  Rows allowed(nodes);
  (void)lists(pairs, nodes, storages);
  for (std::size_t node = 0; node < nodes; ++node)
    for (std::size_t k = 0; k + 1 < pairs[node].size(); k += 2) {
      const int source = pairs[node][k], target = pairs[node][k + 1];
      if (takeable[source] && sizes[source] == sizes[target])
        allowed[node].insert(allowed[node].end(), {source, target});
    }
  graph.pairs = lists(allowed, nodes, storages);
  graph.size.assign(sizes.begin(), sizes.end());
  graph.scratch.assign(scratch.begin(), scratch.end());
  graph.writer = writers;
  graph.stays.assign(stays.begin(), stays.end());
  graph.takeable.assign(takeable.begin(), takeable.end());
  graph.glued.assign(glued.begin(), glued.end());
  graph.finish();
  std::vector<int> listed(nodes);
  std::iota(listed.begin(), listed.end(), 0);
  if (settle(graph, listed).size() != nodes) throw std::invalid_argument("nodes wait for each other in a circle");
  return graph;
}

std::vector<int> checked(const Graph& graph, const std::vector<int>& order) {
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool right = sorted.size() == static_cast<std::size_t>(graph.nodes);
  for (int k = 0; right && k < graph.nodes; ++k) right = sorted[k] == k;
  if (!right) throw std::invalid_argument("an order must have every node once");
  return settle(graph, order);
}

// Asks the interpreter now and then whether somebody pressed Ctrl-C; remembers that instead of raising, so that the
// search can hand over what it has. Anything else that a signal handler raises goes on its way.
struct Signals {
  bool interrupted = false;
  std::optional<nb::python_error> error;

  bool operator()() {
    nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() == 0) return false;
    interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    if (interrupted)
      PyErr_Clear();
    else
      error.emplace();
    return true;
  }
};

std::tuple<std::vector<int>, Wide, Wide, bool> search(const Graph& graph, const Rows& starts, double seconds,
                                                      std::uint64_t seed, std::uint64_t work) {
  Rows settled;
  for (const auto& start : starts) settled.push_back(checked(graph, start));
  Signals signals;
  Outcome outcome;
  {
    nb::gil_scoped_release unlocked;
    Budget budget(seconds, [&] { return signals(); }, work);
    outcome = best_order(graph, settled, seed, budget);
  }
  if (signals.error) throw std::move(*signals.error);
  return {outcome.order, wide(outcome.peak), wide(outcome.bound), signals.interrupted};
}

// One layered search under a cap, for tests: the order (empty if none), what is known, and the next cap to try.
std::tuple<std::vector<int>, std::string, Wide> within(const Graph& graph, Wide cap, std::size_t width,
                                                       std::uint64_t seed, bool backward) {
  std::vector<int> listed(graph.nodes);
  std::iota(listed.begin(), listed.end(), 0);
  const std::vector<int> order = settle(graph, listed);
  const Graph ordered = window(graph, order, 0, graph.nodes);
  Budget budget(1e6, {});
  Answer answer = search_layers(ordered, narrow(cap), width, Effort::best,
                                backward ? Direction::backward : Direction::forward, seed, budget);
  for (int& node : answer.order) node = order[node];
  const char* verdict = answer.verdict == Verdict::found        ? "found"
                        : answer.verdict == Verdict::impossible ? "impossible"
                                                                : "unknown";
  return {answer.order, verdict, wide(answer.next_cap)};
}

Wide bound(const Graph& graph) {
  std::vector<int> listed(graph.nodes);
  std::iota(listed.begin(), listed.end(), 0);
  return wide(node_bound(graph, settle(graph, listed)));
}

}  // namespace

NB_MODULE(ordering, module) {
  const nb::class_<Graph> graph(module, "Graph");
  module.def("make_graph", &make_graph, nb::arg("before"), nb::arg("readers"), nb::arg("sizes"), nb::arg("writers"),
             nb::arg("stays"), nb::arg("takeable"), nb::arg("pairs"), nb::arg("glued"), nb::arg("scratch"));
  module.def("settle", &checked, nb::arg("graph"), nb::arg("order"));
  module.def(
      "peak",
      [](const Graph& graph, const std::vector<int>& order) { return wide(peak_of(graph, checked(graph, order))); },
      nb::arg("graph"), nb::arg("order"));
  module.def("node_bound", &bound, nb::arg("graph"));
  module.def("within", &within, nb::arg("graph"), nb::arg("cap"), nb::arg("width"), nb::arg("seed"),
             nb::arg("backward"));
  module.def("search", &search, nb::arg("graph"), nb::arg("starts"), nb::arg("seconds"), nb::arg("seed"),
             nb::arg("work") = Budget::kEndless);
}
