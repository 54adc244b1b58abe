// Small graphs through the order search, against all sets of executed nodes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "fuzz_source.hpp"
#include "ordering_graph.hpp"
#include "ordering_layers.hpp"
#include "ordering_search.hpp"

using namespace onnxmem::ordering;

namespace {

int pick(Source& source, int low, int high) { return source.pick(low, high); }

Graph graph_from(Source& source) {
  Graph graph;
  graph.nodes = pick(source, 1, pick(source, 0, 3) ? 7 : 11);
  const int density = pick(source, 1, 4), in_place = pick(source, 0, 2), glue = pick(source, 0, 2);
  std::vector<std::vector<int>> before(graph.nodes), writes(graph.nodes), readers;
  for (int v = 1; v < graph.nodes; ++v)
    for (int k = pick(source, 0, density); k > 0; --k) {
      const int other = pick(source, std::max(0, v - 5), v - 1);
      if (std::find(before[v].begin(), before[v].end(), other) == before[v].end()) before[v].push_back(other);
    }
  const Bytes unit = pick(source, 0, 9) ? 1 : Bytes{1} << 61;  // sums far beyond 63 bits now and then
  for (int v = 0; v < graph.nodes; ++v)
    for (int part = pick(source, 0, 5) ? 1 : pick(source, 0, 2); part > 0; --part) {
      std::vector<int> row;
      for (int other = v + 1; other < graph.nodes; ++other)
        if (std::find(before[other].begin(), before[other].end(), v) != before[other].end() && pick(source, 0, 7))
          row.push_back(other);
      writes[v].push_back(static_cast<int>(readers.size()));
      graph.writer.push_back(v);
      graph.stays.push_back(pick(source, 0, 7) == 0);
      readers.push_back(row);
    }
  for (int part = pick(source, 0, 1); part > 0; --part) {
    graph.writer.push_back(-1);
    graph.stays.push_back(pick(source, 0, 3) == 0);
    std::vector<int> row;
    for (int v = 0; v < graph.nodes; ++v)
      if (!pick(source, 0, 3)) row.push_back(v);
    if (row.empty()) graph.stays.back() = 1;
    readers.push_back(row);
  }
  const int largest = pick(source, 1, 12);
  for (std::size_t s = 0; s < readers.size(); ++s) {
    graph.size.push_back(pick(source, 0, largest) * unit);
    graph.takeable.push_back(!graph.stays[s] && graph.writer[s] >= 0);
    graph.readers.add(readers[s]);
  }
  graph.reads = inverse(graph.readers, graph.nodes);
  for (int v = 0; v < graph.nodes; ++v) {
    graph.before.add(before[v]);
    graph.writes.add(writes[v]);
    std::vector<int> row;
    for (int target : writes[v])
      for (int input : graph.reads[v])
        if (graph.takeable[input] && graph.size[input] == graph.size[target] && pick(source, 0, 2) < in_place)
          row.insert(row.end(), {input, target});
    graph.pairs.add(row);
    graph.scratch.push_back(pick(source, 0, 5) ? 0 : pick(source, 1, 6) * unit);
    graph.glued.push_back(glue == 2 && !pick(source, 0, 3));
  }
  graph.after = inverse(graph.before, graph.nodes);
  graph.finish();
  return graph;
}

// The definition, once more and slowly: what is alive when exactly the nodes in `mask` have run?
Bytes live(const Graph& graph, unsigned mask) {
  Bytes sum = graph.base;
  for (int s = 0; s < static_cast<int>(graph.size.size()); ++s) {
    if (graph.writer[s] >= 0 && !(mask >> graph.writer[s] & 1)) continue;
    bool needed = graph.stays[s];
    for (int reader : graph.readers[s]) needed = needed || !(mask >> reader & 1);
    if (needed) sum += graph.size[s];
  }
  return sum;
}

Bytes during(const Graph& graph, unsigned mask, int node) {
  Bytes sum = live(graph, mask) + graph.scratch[node];
  for (int s : graph.writes[node]) sum += graph.size[s];
  std::vector<char> taken(graph.size.size()), placed(graph.size.size());
  const auto pairs = graph.pairs[node];
  for (std::size_t k = 0; k < pairs.size(); k += 2) {
    bool last = !taken[pairs[k]] && !placed[pairs[k + 1]];
    for (int reader : graph.readers[pairs[k]]) last = last && (reader == node || (mask >> reader & 1));
    if (last) taken[pairs[k]] = placed[pairs[k + 1]] = 1, sum -= graph.size[pairs[k]];
  }
  return sum;
}

Bytes least_peak(const Graph& graph) {
  std::vector<Bytes> best(std::size_t{1} << graph.nodes, kUnlimited);
  best[0] = live(graph, 0);
  for (unsigned mask = 0; mask + 1 < best.size(); ++mask) {
    if (best[mask] == kUnlimited) continue;
    bool urgent = false;
    const auto ready = [&](int v) {
      bool free = !(mask >> v & 1);
      for (int other : graph.before[v]) free = free && (mask >> other & 1);
      return free;
    };
    for (int v = 0; v < graph.nodes; ++v) urgent = urgent || (graph.glued[v] && ready(v));
    for (int v = 0; v < graph.nodes; ++v)
      if (ready(v) && (!urgent || graph.glued[v])) {
        Bytes& next = best[mask | 1u << v];
        next = std::min(next, std::max(best[mask], during(graph, mask, v)));
      }
  }
  return best.back();
}

void require(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// The whole search, with all the time there is and with none.
void check_search(const Graph& graph, const std::vector<int>& order, Source& source) {
  const Bytes least = least_peak(graph);
  require(node_bound(graph, order) <= least, "the node bound is above the optimum");
  Budget budget(1e6, {});
  Outcome outcome = best_order(graph, {}, source.next(), budget);
  if (planted() && graph.nodes > 4 && outcome.peak > node_bound(graph, order))
    std::swap(outcome.order[1], outcome.order[2]);
  require(outcome.peak == least && outcome.bound == least, "the search is not exact");
  require(peak_of(graph, outcome.order) == least, "the order has another peak");
  require(settle(graph, outcome.order) == outcome.order, "the order cannot run");
  Budget none(0, {});
  const Outcome hurried = best_order(graph, {order}, 1, none);
  require(hurried.peak <= peak_of(graph, order) && hurried.bound <= least, "a hurried search is wrong");
}

// Is there an order within a cap, searched from one end?
void check_layers(const Graph& graph, const std::vector<int>& order, Source& source, Direction direction) {
  const bool glued = std::count(graph.glued.begin(), graph.glued.end(), 1) > 0;
  if (glued && direction == Direction::backward) return;
  const Graph whole = window(graph, order, 0, graph.nodes);
  const Bytes least = least_peak(graph), cap = least + pick(source, -2, 1);
  Budget budget(1e6, {});
  const Answer answer = search_layers(whole, cap, 1 << 20, Effort::best, direction, source.next(), budget);
  require((answer.verdict == Verdict::found) == (cap >= least), "a cap is judged wrongly");
  if (answer.verdict == Verdict::impossible)
    require(cap < answer.next_cap && answer.next_cap <= least, "the next cap is wrong");
  else
    require(peak_of(whole, answer.order) <= cap, "an order breaks its cap");
}

// Windows of an order add up to the order.
void check_windows(const Graph& graph, const std::vector<int>& order, Source& source) {
  const int begin = pick(source, 0, graph.nodes), end = pick(source, begin, graph.nodes);
  Bytes most = graph.start;
  for (const auto& [from, to] : {std::pair{0, begin}, std::pair{begin, end}, std::pair{end, graph.nodes}}) {
    const Graph part = window(graph, order, from, to);
    std::vector<int> same(part.nodes);
    std::iota(same.begin(), same.end(), 0);
    most = std::max(most, peak_of(part, same));
  }
  require(most == peak_of(graph, order), "windows do not add up");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Source source(data, size);
  const int what = pick(source, 0, 3);
  const Graph graph = graph_from(source);
  std::vector<int> listed(graph.nodes);
  std::iota(listed.begin(), listed.end(), 0);
  const std::vector<int> order = settle(graph, listed);
  switch (what) {
    case 0: check_search(graph, order, source); break;
    case 1: check_layers(graph, order, source, Direction::forward); break;
    case 2: check_layers(graph, order, source, Direction::backward); break;
    default: check_windows(graph, order, source); break;
  }
  return 0;
}
