// Between two steps the live bytes depend only on which nodes have run, whatever their order was; call it live(D).
// That function is submodular: memory is opened by one node and closed by all of its readers together. Two consequences
// keep the layers small, both by moving nodes forward in an order that stays within the cap:
//
// 1. If running a node, or a chain of nodes each made ready by the one before, fits under the cap and leaves no more
//    alive than before (and did not on the way), some best order continues exactly so. (`advance`)
// 2. If a state M reached from a root R leaves no more alive than R, and no more than any set between the two does,
//    then some best order passes through it: everything else can be forgotten. (`commit`)
//
// Layers come by number of nodes, so the sets between R and M were all seen before M is, if they can be reached at all;
// and the smallest of them can, because M can. Rule 1 spoils this by jumping ahead, perhaps over M: a state is
// committed to only if it leaves no more alive than any state did from which a jump began (`floor_`), and if all such
// jumps that are possible from a set inside it would end inside it, which is so if no chain can be added to it.
//
// Moving nodes forward may take from another node the chance to work in place, by making somebody else the last reader
// of its input. It does no harm: the input is then freed that much earlier (or was not to be freed at all), so the same
// bytes are missing in the sum that the other node adds to. Glued nodes travel with their one predecessor; with
// several, neither rule holds and both are switched off.
//
// All of it can be done from the end as well, taking nodes back one by one. That is the better way where memory grows
// towards the end: there it is a node's lateness that costs nothing.
#include "ordering_layers.hpp"

#include <algorithm>
#include <bit>
#include <tuple>

namespace onnxmem::ordering {

namespace {

constexpr std::size_t kMemory = std::size_t{384} << 20;  // bytes of states kept at once
constexpr std::size_t kTrail = std::size_t{1} << 24;     // steps remembered for telling the order at the end
constexpr std::size_t kChain = 48;                       // how far a chain is followed for rule 1
constexpr int kVisits = 4096;                            // how many steps of branching chains are tried for rule 2

struct Key {  // a set of nodes as 128 random bits: two sets that meet in one are not to be expected in any lifetime
  std::uint64_t high = 0, low = 0;
  auto operator<=>(const Key&) const = default;
  Key operator^(const Key& other) const { return {high ^ other.high, low ^ other.low}; }
};

std::uint64_t mix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

struct State {
  std::uint32_t slot;
  int trail, count;
  Bytes live;
  Key key;
};

struct Row {  // a state to come: a child not made yet, or (parent -1) the waiting state `node`
  Key key;
  Bytes live;
  int parent, node;
};

template <bool Backward>
class Layers {
 public:
  Layers(const Graph& graph, Bytes cap, std::size_t width, Effort effort, std::uint64_t seed, Budget& budget)
      : graph_(graph), cap_(cap), width_(width), effort_(effort), budget_(budget), steps_(graph),
        words_(static_cast<std::size_t>(graph.nodes) / 64 + 1), keys_(graph.nodes), waiting_(graph.nodes + 1) {
    for (Key& key : keys_) key = {mix(seed), mix(seed)};
    has_glue_ = std::count(graph.glued.begin(), graph.glued.end(), 1) > 0;
    for (int node = 0; node < graph.nodes; ++node)
      simple_glue_ = simple_glue_ && (!graph.glued[node] || (!Backward && graph.before[node].size() <= 1));
    most_slots_ = std::max<std::size_t>(kMemory / (2 * words_ * sizeof(std::uint64_t)), 16);
  }

  Answer solve() {
    const Bytes ends = std::max(graph_.start, graph_.end);
    if (ends > cap_) return {Verdict::impossible, {}, ends};
    if (graph_.nodes == 0) return {Verdict::found, {}, 0};
    if (Backward && !simple_glue_) return {Verdict::unknown, {}, 0};
    State root{take_slot(), -1, 0, Backward ? graph_.end : graph_.start, {}};
    for (int node = 0; node < graph_.nodes; ++node)
      if (before(node).empty()) ready(root).set(node);
    open_all(root);
    advance(root, root.live);
    root_live_ = root.live, root_count_ = root.count;
    floor_ = kUnlimited;
    waiting_[root.count].push_back(root);
    for (int layer = root.count; layer <= graph_.nodes; ++layer) {
      if (!waiting_[graph_.nodes].empty()) return {Verdict::found, told(waiting_[graph_.nodes][0]), 0};
      if (!make_layer(layer)) return {Verdict::unknown, {}, 0};
      if (layer == graph_.nodes && !layer_.empty()) return {Verdict::found, told(layer_[0]), 0};
      commit();
      expand();
    }
    return {dropped_ ? Verdict::unknown : Verdict::impossible, {}, next_cap_};
  }

 private:
  // Looking back, what comes after a node comes first.
  std::span<const int> before(int node) const { return Backward ? graph_.after[node] : graph_.before[node]; }
  std::span<const int> after(int node) const { return Backward ? graph_.before[node] : graph_.after[node]; }
  Effect step(const State& state, int node, Bytes live) {
    budget_.spend(1 + graph_.reads[node].size() + graph_.writes[node].size());
    return Backward ? steps_.take_back(done(state), node, live) : steps_.run(done(state), node, live);
  }

  Bits done(const State& state) { return {memory_.data() + 2 * words_ * state.slot}; }
  Bits ready(const State& state) { return {memory_.data() + 2 * words_ * state.slot + words_}; }

  std::uint32_t take_slot() {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(memory_.size() / (2 * words_)));
      memory_.resize(memory_.size() + 2 * words_);
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  // Turns the children of the last layer, and the states that jumped here, into this layer's states.
  bool make_layer(int layer) {
    auto& arrived = waiting_[layer];
    for (int k = 0; k < static_cast<int>(arrived.size()); ++k)
      rows_.push_back({arrived[k].key, arrived[k].live, -1, k});
    std::sort(rows_.begin(), rows_.end(),
              [](const Row& a, const Row& b) { return std::tie(a.key, a.parent) < std::tie(b.key, b.parent); });
    std::vector<char> used(arrived.size());
    rows_.erase(std::unique(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.key == b.key; }),
                rows_.end());
    if (rows_.size() > width_) {
      if (effort_ == Effort::proof) return false;
      std::nth_element(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(width_), rows_.end(),
                       [](const Row& a, const Row& b) { return std::tie(a.live, a.key) < std::tie(b.live, b.key); });
      rows_.resize(width_);
      dropped_ = true;
    }
    std::vector<State> next;
    for (const Row& row : rows_) {
      if (budget_.over() || trail_.size() > kTrail) return false;
      if (row.parent < 0) {
        next.push_back(arrived[row.node]);
        used[row.node] = 1;
        continue;
      }
      if (memory_.size() / (2 * words_) - free_.size() >= most_slots_) {
        dropped_ = true;
        continue;
      }
      budget_.spend(4 * words_);
      State child = layer_[row.parent];
      child.slot = take_slot();
      std::copy_n(done(layer_[row.parent]).words, 2 * words_, done(child).words);
      run(child, row.node, row.live);
      open_.clear();
      open_near(child, row.node);
      advance(child, layer_[row.parent].live);
      if (child.count == layer)
        next.push_back(child);
      else
        waiting_[child.count].push_back(child);
    }
    for (std::size_t k = 0; k < arrived.size(); ++k)
      if (!used[k]) free_.push_back(arrived[k].slot);
    for (const State& state : layer_) free_.push_back(state.slot);
    arrived.clear();
    rows_.clear();
    layer_ = std::move(next);
    return true;
  }

  void run(State& state, int node, Bytes live_after) {
    enabled_.clear();
    enable(state, node);
    trail_.emplace_back(state.trail, node);
    state.trail = static_cast<int>(trail_.size()) - 1;
    state.key = state.key ^ keys_[node];
    state.live = live_after;
    ++state.count;
  }

  // Marks a node as run; those that it makes ready are appended to `enabled_`.
  void enable(State& state, int node) {
    Bits ran = done(state), open = ready(state);
    ran.set(node);
    open.clear(node);
    for (int follower : after(node)) {
      bool free = true;
      for (int other : before(follower)) free = free && ran.has(other);
      if (free && !open.has(follower)) open.set(follower), enabled_.push_back(follower);
    }
  }

  template <class Visit>
  void each_ready(const State& state, Visit visit) {
    const Bits open = ready(state);
    for (std::size_t w = 0; w < words_; ++w)
      for (std::uint64_t bits = open.words[w]; bits; bits &= bits - 1)
        if (visit(static_cast<int>(w) * 64 + std::countr_zero(bits))) return;
  }

  bool any_glued(const State& state) {
    bool found = false;
    if (has_glue_) each_ready(state, [&](int node) { return found = graph_.glued[node]; });
    return found;
  }

  bool fits(Bytes bytes) {
    if (bytes <= cap_) return true;
    next_cap_ = std::min(next_cap_, bytes);
    return false;
  }

  // Rule 1, as often as it applies, beginning with the nodes in `open_`. `branching` also tries chains where several
  // nodes could come next.
  bool advance(State& state, Bytes known, bool branching = false) {
    if (!simple_glue_) return false;
    const int before = state.count;
    bool all = false;
    while (!open_.empty() && !any_glued(state)) {
      const int first = open_.back();
      open_.pop_back();
      chain_.clear();
      enabled_.clear();
      if (!ready(state).has(first) || !follow(state, first, state.live, 0, branching)) continue;
      floor_ = std::min(floor_, state.live);
      for (const auto& [node, live] : chain_) {
        trail_.emplace_back(state.trail, node);
        state.trail = static_cast<int>(trail_.size()) - 1;
        state.key = state.key ^ keys_[node];
        ++state.count;
      }
      state.live = chain_.back().second;
      // With less alive than when the others were tried, they may fit now.
      if (!all && state.live < known)
        all = true, known = state.live, open_all(state);
      else
        for (const auto& [node, live] : chain_) open_near(state, node);
    }
    return state.count > before;
  }

  void open_all(const State& state) {
    open_.clear();
    each_ready(state, [&](int node) { return open_.push_back(node), false; });
  }

  // Which chains may go differently now that `node` has run? Those through nodes that read what it read, or that lead
  // to the same nodes. Overlooking one would do no harm but cost states.
  void open_near(const State& state, int node) {
    for (int storage : graph_.reads[node])
      for (int other : graph_.readers[storage]) open_head(state, other);
    if constexpr (Backward)
      for (int storage : graph_.writes[node])
        for (int other : graph_.readers[storage]) open_head(state, other);
    for (int follower : after(node)) {
      if (ready(state).has(follower))
        open_.push_back(follower);
      else
        for (int other : before(follower)) open_head(state, other);
    }
  }

  // Where a chain through `node` would begin: up from it as long as it waits for just one.
  void open_head(const State& state, int node) {
    for (std::size_t steps = 0; steps < kChain && !done(state).has(node); ++steps) {
      if (ready(state).has(node)) return open_.push_back(node);
      int waits = 0, last = -1;
      for (int other : before(node))
        if (!done(state).has(other)) ++waits, last = other;
      if (waits != 1) return;
      node = last;
    }
  }

  // Runs `node` and on from there until no more is alive than in `state`; undoes it if that does not happen. What can
  // come next was made ready since `enabled_` had `since` entries: by the last node, or by nodes glued to it.
  bool follow(State& state, int node, Bytes live, std::size_t since, bool branching) {
    if (branching && ++visits_ > kVisits) return false;
    const Effect effect = step(state, node, live);
    if (!fits(effect.during) || chain_.size() >= kChain) return false;
    const std::size_t mark = enabled_.size();
    chain_.emplace_back(node, effect.after);
    enable(state, node);

    const std::size_t end = enabled_.size();
    int candidates = 0, urgent = -1;
    for (std::size_t k = since; k < end; ++k) {
      if (done(state).has(enabled_[k])) continue;
      ++candidates;
      if (graph_.glued[enabled_[k]]) urgent = enabled_[k];
    }
    if (urgent >= 0) {
      if (follow(state, urgent, effect.after, since, branching)) return true;
    } else {
      if (effect.after <= state.live) return true;
      if (candidates == 1 || branching)
        for (std::size_t k = since; k < end; ++k)
          if (const int next = enabled_[k]; !done(state).has(next))
            if (follow(state, next, effect.after, end, branching)) return true;
    }
    for (std::size_t k = mark; k < end; ++k) ready(state).clear(enabled_[k]);
    enabled_.resize(mark);
    done(state).clear(node);
    ready(state).set(node);
    chain_.pop_back();
    return false;
  }

  // Rule 2.
  void commit() {
    if (!simple_glue_) return;
    int chosen = -1;
    for (int k = 0; k < static_cast<int>(layer_.size());) {
      State& state = layer_[k];
      const bool low = state.count > root_count_ && state.live <= std::min(root_live_, floor_) && !any_glued(state);
      visits_ = 0;
      if (low) open_all(state);
      if (low && advance(state, state.live, true)) {
        waiting_[state.count].push_back(state);
        state = layer_.back();
        layer_.pop_back();
        continue;
      }
      if (low && visits_ > kVisits)
        floor_ = std::min(floor_, state.live);  // not known to be closed: it stays a state
      else if (low && (chosen < 0 || state.live < layer_[chosen].live))
        chosen = k;
      ++k;
    }
    if (chosen < 0 || layer_[chosen].live > floor_) return;
    const State kept = layer_[chosen];
    for (const State& state : layer_)
      if (state.slot != kept.slot) free_.push_back(state.slot);
    for (auto& states : waiting_) {
      for (const State& state : states) free_.push_back(state.slot);
      states.clear();
    }
    prefix_ = told(kept);
    trail_.clear();
    layer_ = {kept};
    layer_[0].trail = -1;
    root_live_ = kept.live, root_count_ = kept.count;
    floor_ = kUnlimited;
  }

  void expand() {
    for (int k = 0; k < static_cast<int>(layer_.size()); ++k) {
      const State& state = layer_[k];
      const bool urgent = any_glued(state);
      each_ready(state, [&](int node) {
        if (urgent && !graph_.glued[node]) return false;
        const Effect effect = step(state, node, state.live);
        if (fits(effect.during)) rows_.push_back({state.key ^ keys_[node], effect.after, k, node});
        return false;
      });
    }
  }

  std::vector<int> told(const State& state) {
    std::vector<int> order;
    for (int at = state.trail; at >= 0; at = trail_[at].first) order.push_back(trail_[at].second);
    std::reverse(order.begin(), order.end());
    order.insert(order.begin(), prefix_.begin(), prefix_.end());
    if (Backward && state.count == graph_.nodes) std::reverse(order.begin(), order.end());
    return order;
  }

  const Graph& graph_;
  const Bytes cap_;
  const std::size_t width_;
  const Effort effort_;
  Budget& budget_;
  Steps steps_;
  const std::size_t words_;
  std::size_t most_slots_ = 0;
  std::vector<Key> keys_;
  std::vector<std::uint64_t> memory_;  // per slot: the nodes that have run, then those that are ready
  std::vector<std::uint32_t> free_;
  std::vector<std::vector<State>> waiting_;  // by number of nodes run: states that jumped over layers
  std::vector<State> layer_;
  std::vector<Row> rows_;
  std::vector<std::pair<int, int>> trail_;  // previous step, node
  std::vector<int> prefix_, enabled_, open_;
  std::vector<std::pair<int, Bytes>> chain_;
  Bytes root_live_ = 0, floor_ = kUnlimited, next_cap_ = kUnlimited;
  int root_count_ = 0, visits_ = 0;
  bool dropped_ = false, has_glue_ = false, simple_glue_ = true;
};

}  // namespace

Answer search_layers(const Graph& graph, Bytes cap, std::size_t width, Effort effort, Direction direction,
                     std::uint64_t seed, Budget& budget) {
  if (direction == Direction::forward) return Layers<false>(graph, cap, width, effort, seed, budget).solve();
  return Layers<true>(graph, cap, width, effort, seed, budget).solve();
}

}  // namespace onnxmem::ordering
