#include "ordering_graph.hpp"

#include <algorithm>
#include <bit>

namespace onnxmem::ordering {

Lists inverse(const Lists& rows, int count) {
  Lists turned;
  turned.begin.assign(count + 1, 0);
  turned.items.resize(rows.items.size());
  for (int item : rows.items) ++turned.begin[item + 1];
  for (int k = 0; k < count; ++k) turned.begin[k + 1] += turned.begin[k];
  std::vector<int> next(turned.begin.begin(), turned.begin.end() - 1);
  for (int row = 0; row < rows.size(); ++row)
    for (int item : rows[row]) turned.items[next[item]++] = row;
  return turned;
}

void Graph::finish() {
  needs = scratch;
  keeps.assign(nodes, 0);
  start = end = base;
  for (int s = 0; s < static_cast<int>(size.size()); ++s) {
    if (stays[s]) end += size[s];
    if (writer[s] < 0) {
      start += size[s];
    } else {
      needs[writer[s]] += size[s];
      if (stays[s] || !readers[s].empty()) keeps[writer[s]] += size[s];
    }
  }
}

// Is `node` the last to read a storage? Looking ahead, all others have run; looking back, none is yet to run.
template <bool Backward>
static bool is_last_reader(const Graph& graph, Bits moved, int storage, int node) {
  for (int reader : graph.readers[storage])
    if (reader != node && moved.has(reader) == Backward) return false;
  return true;
}

template <bool Backward>
Effect Steps::step(Bits moved, int node, Bytes live) {
  Bytes freed = 0, saved = 0;
  for (int storage : graph_.reads[node])
    if (!graph_.stays[storage] && is_last_reader<Backward>(graph_, moved, storage, node)) freed += graph_.size[storage];
  const auto pairs = graph_.pairs[node];
  chosen_.clear();
  for (std::size_t k = 0; k < pairs.size(); k += 2) {
    const int source = pairs[k], target = pairs[k + 1];
    const bool used = std::any_of(chosen_.begin(), chosen_.end(),
                                  [&](const auto& pair) { return pair.first == source || pair.second == target; });
    if (used || !is_last_reader<Backward>(graph_, moved, source, node)) continue;
    chosen_.emplace_back(source, target);
    saved += graph_.size[source];
  }
  const Bytes change = graph_.keeps[node] - freed;
  const Bytes before = Backward ? live - change : live;
  return {before + graph_.needs[node] - saved, Backward ? before : live + change};
}

Effect Steps::run(Bits done, int node, Bytes live) { return step<false>(done, node, live); }
Effect Steps::take_back(Bits undone, int node, Bytes live) { return step<true>(undone, node, live); }

Bytes peak_of(const Graph& graph, std::span<const int> order) {
  std::vector<std::uint64_t> words((graph.nodes + 63) / 64 + 1);
  const Bits done{words.data()};
  Steps steps(graph);
  Bytes live = graph.start, most = live;
  for (int node : order) {
    const Effect effect = steps.run(done, node, live);
    most = std::max(most, effect.during);
    live = effect.after;
    Bits{words.data()}.set(node);
  }
  return most;
}

Graph window(const Graph& graph, std::span<const int> order, int begin, int end) {
  Graph part;
  part.nodes = end - begin;
  std::vector<int> step(graph.nodes), local(graph.size.size(), -1), whole;
  for (int k = 0; k < static_cast<int>(order.size()); ++k) step[order[k]] = k;
  const auto inside = [&](int node) { return begin <= step[node] && step[node] < end; };

  Lists readers;
  std::vector<int> row;
  for (int s = 0; s < static_cast<int>(graph.size.size()); ++s) {
    const int writer = graph.writer[s];
    if (writer >= 0 && step[writer] >= end) continue;
    row.clear();
    bool later = graph.stays[s];
    for (int reader : graph.readers[s]) {
      if (inside(reader)) row.push_back(step[reader] - begin);
      later = later || step[reader] >= end;
    }
    const bool born = writer >= 0 && inside(writer);
    if (!born && row.empty()) {
      if (later) part.base += graph.size[s];
      continue;
    }
    local[s] = static_cast<int>(whole.size());
    whole.push_back(s);
    part.size.push_back(graph.size[s]);
    part.writer.push_back(born ? step[writer] - begin : -1);
    part.stays.push_back(later);
    part.takeable.push_back(graph.takeable[s] && !later);
    readers.add(row);
  }
  part.readers = std::move(readers);
  part.reads = inverse(part.readers, part.nodes);
  for (int k = begin; k < end; ++k) {
    const int node = order[k];
    row.clear();
    for (int other : graph.before[node])
      if (inside(other)) row.push_back(step[other] - begin);
    part.before.add(row);
    row.clear();
    for (int s : graph.writes[node]) row.push_back(local[s]);
    part.writes.add(row);
    row.clear();
    const auto pairs = graph.pairs[node];
    for (std::size_t j = 0; j < pairs.size(); j += 2)
      if (part.takeable[local[pairs[j]]]) row.insert(row.end(), {local[pairs[j]], local[pairs[j + 1]]});
    part.pairs.add(row);
    part.scratch.push_back(graph.scratch[node]);
    part.glued.push_back(graph.glued[node]);
  }
  part.after = inverse(part.before, part.nodes);
  part.finish();
  return part;
}

std::vector<int> forced_steps(const Graph& graph, std::span<const int> order) {
  const int count = static_cast<int>(order.size());
  std::vector<int> step(graph.nodes), earliest(count), forced;
  for (int k = 0; k < count; ++k) step[order[k]] = k;
  // The node at step k is comparable to all others if all before it have a successor up to k, and all after it a
  // predecessor from k on. `earliest[k]`: the smallest "latest predecessor" among the steps after k.
  int smallest = count;
  for (int k = count - 1; k >= 0; --k) {
    earliest[k] = smallest;
    int latest = -1;
    for (int other : graph.before[order[k]]) latest = std::max(latest, step[other]);
    smallest = std::min(smallest, latest);
  }
  int furthest = -1;
  for (int k = 0; k < count; ++k) {
    if (furthest <= k && earliest[k] >= k) forced.push_back(k + 1);
    int next = count;
    for (int other : graph.after[order[k]]) next = std::min(next, step[other]);
    furthest = std::max(furthest, next);
  }
  return forced;
}

Relation::Relation(int rows, int columns) : stride(columns / 64 + 1), words(rows * stride) {}

Relation ancestors(const Graph& graph, std::span<const int> order) {
  Relation found(graph.nodes, graph.nodes);
  for (int node : order) {
    for (int other : graph.before[node]) {
      for (std::size_t w = 0; w < found.stride; ++w) found[node].words[w] |= found[other].words[w];
      found[node].set(other);
    }
  }
  return found;
}

Bytes node_bound(const Graph& graph, std::span<const int> order) {
  Relation above = ancestors(graph, order);
  Relation below(graph.nodes, graph.nodes);
  for (int node = 0; node < graph.nodes; ++node)
    for (int other = 0; other < graph.nodes; ++other)
      if (above[node].has(other)) below[other].set(node);

  std::vector<Bytes> held(graph.nodes, graph.base);
  std::vector<std::uint64_t> mask(above.stride);
  for (int s = 0; s < static_cast<int>(graph.size.size()); ++s) {
    // While which nodes must it be alive? After its writer, and while somebody who reads it is still to run.
    std::fill(mask.begin(), mask.end(), graph.stays[s] ? ~std::uint64_t{0} : 0);
    for (int reader : graph.readers[s]) {
      for (std::size_t w = 0; w < mask.size(); ++w) mask[w] |= above[reader].words[w];
      Bits{mask.data()}.set(reader);
    }
    for (std::size_t w = 0; w < mask.size(); ++w) {
      std::uint64_t bits = graph.writer[s] < 0 ? mask[w] : mask[w] & below[graph.writer[s]].words[w];
      for (; bits; bits &= bits - 1) {
        const int node = static_cast<int>(w) * 64 + std::countr_zero(bits);
        if (node < graph.nodes) held[node] += graph.size[s];
      }
    }
  }
  Bytes bound = std::max(graph.start, graph.end);
  Steps steps(graph);
  std::vector<std::uint64_t> others(above.stride);
  for (int node = 0; node < graph.nodes; ++node) {
    // Nothing but its descendants can keep a node from sharing memory in place.
    for (std::size_t w = 0; w < others.size(); ++w) others[w] = ~below[node].words[w];
    const Effect effect = steps.run(Bits{others.data()}, node, held[node]);
    bound = std::max(bound, effect.during);
  }
  return bound;
}

}  // namespace onnxmem::ordering
