// Three stages, repeated with more effort until the proof is complete or the time is over:
//   cut      where a node is comparable to all others, every order is cut in two that do not know of each other;
//   piece    the piece with the largest peak is searched under falling caps, with ever wider layers;
//   windows  if it is too wide for a proof, short stretches of the best order around its peak are searched again.
#include "ordering_search.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

namespace onnxmem::ordering {

std::vector<int> settle(const Graph& graph, std::span<const int> wish) {
  std::vector<int> place(graph.nodes), waits(graph.nodes), order;
  for (int k = 0; k < static_cast<int>(wish.size()); ++k) place[wish[k]] = k;
  using Turn = std::pair<int, int>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> ready;
  const auto offer = [&](int node) {
    ready.emplace(graph.glued[node] ? -graph.nodes + place[node] : place[node], node);
  };
  for (int node = 0; node < graph.nodes; ++node) {
    waits[node] = static_cast<int>(graph.before[node].size());
    if (!waits[node]) offer(node);
  }
  while (!ready.empty()) {
    const int node = ready.top().second;
    ready.pop();
    order.push_back(node);
    for (int other : graph.after[node])
      if (!--waits[other]) offer(other);
  }
  return order;
}

std::vector<int> depth_first(const Graph& graph) {
  std::vector<int> order;
  std::vector<char> seen(graph.nodes);
  std::vector<std::pair<int, std::size_t>> stack;
  for (int last = 0; last < graph.nodes; ++last) {
    if (!graph.after[last].empty()) continue;
    stack.emplace_back(last, 0);
    seen[last] = 1;
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      const auto before = graph.before[node];
      if (next == before.size()) {
        order.push_back(node);
        stack.pop_back();
      } else if (const int other = before[next++]; !seen[other]) {
        seen[other] = 1;
        stack.emplace_back(other, 0);
      }
    }
  }
  return order;
}

namespace {

constexpr std::size_t kWidest = std::size_t{1} << 20;

struct Piece {
  int begin, end;
  Graph graph;  // its nodes are numbered by their step when the pieces were made
  std::vector<int> nodes;
  Bytes upper, lower;
  std::size_t tried = 0;  // the widest layers it was searched with
};

class Search {
 public:
  Search(const Graph& graph, std::vector<int> order, std::uint64_t seed, Budget& budget)
      : graph_(graph), order_(std::move(order)), seed_(seed), budget_(budget) {}

  Outcome solve() {
    cut();
    for (std::size_t width = 4; width <= kWidest && !finished(); width *= 4) {
      for (bool better = true; better && !finished();) {
        Piece* piece = bottleneck();
        while (piece && piece->tried < width && !finished()) {
          piece->tried = width;
          prove(*piece, width * 16);
          improve(*piece, width);
          piece = bottleneck();
        }
        better = !finished() && polish(width * 8);
      }
      if (Piece* piece = bottleneck(); piece && width >= 64) raise(*piece, width * 4);
    }
    return {order_, upper(), std::min(lower(), upper())};
  }

 private:
  // Single nodes between forced steps have one order only; what they need is a bound for all.
  void cut() {
    const std::vector<Bytes> during = trace();
    fixed_ = graph_.start;
    int begin = 0;
    std::vector<int> ends = forced_steps(graph_, order_);
    if (ends.empty() || ends.back() != graph_.nodes) ends.push_back(graph_.nodes);
    for (int end : ends) {
      const Bytes most = *std::max_element(during.begin() + begin, during.begin() + end);
      if (end - begin == 1) {
        fixed_ = std::max(fixed_, most);
      } else {
        Piece piece{
            begin, end, window(graph_, order_, begin, end), {order_.begin() + begin, order_.begin() + end}, most, 0, 0};
        std::vector<int> same(end - begin);
        std::iota(same.begin(), same.end(), 0);
        piece.lower = std::min(node_bound(piece.graph, same), most);
        pieces_.push_back(std::move(piece));
      }
      begin = end;
    }
  }

  std::vector<Bytes> trace() const {
    std::vector<std::uint64_t> words(graph_.nodes / 64 + 1);
    std::vector<Bytes> during;
    Steps steps(graph_);
    Bytes live = graph_.start;
    for (int node : order_) {
      const Effect effect = steps.run({words.data()}, node, live);
      during.push_back(effect.during);
      live = effect.after;
      Bits{words.data()}.set(node);
    }
    return during;
  }

  Bytes upper() const {
    Bytes most = fixed_;
    for (const Piece& piece : pieces_) most = std::max(most, piece.upper);
    return most;
  }
  Bytes lower() const {
    Bytes most = fixed_;
    for (const Piece& piece : pieces_) most = std::max(most, piece.lower);
    return most;
  }
  bool finished() { return lower() >= upper() || budget_.over(); }

  Piece* bottleneck() {
    const Bytes most = upper();
    for (Piece& piece : pieces_)
      if (piece.upper == most && piece.lower < most) return &piece;
    return nullptr;
  }

  // One search from each end, the one that did better last time first.
  Answer either_way(const Graph& graph, Bytes cap, std::size_t width, Effort effort) {
    Answer answer{Verdict::unknown, {}, 0};
    for (int turn = 0; turn < 2 && answer.verdict == Verdict::unknown && !budget_.over(); ++turn) {
      answer = search_layers(graph, cap, width, effort, first_, seed_, budget_);
      if (answer.verdict == Verdict::unknown)
        first_ = first_ == Direction::forward ? Direction::backward : Direction::forward;
    }
    return answer;
  }

  // Searches one piece under a cap and keeps what is learnt.
  Verdict attempt(Piece& piece, Bytes cap, std::size_t width, Effort effort) {
    const Answer answer = either_way(piece.graph, cap, width, effort);
    if (answer.verdict == Verdict::found) {
      piece.upper = peak_of(piece.graph, answer.order);
      for (int k = 0; k < piece.end - piece.begin; ++k) order_[piece.begin + k] = piece.nodes[answer.order[k]];
    } else if (answer.verdict == Verdict::impossible) {
      piece.lower = std::min(answer.next_cap, piece.upper);
    }
    return answer.verdict;
  }

  // Is the best order so far optimal? The bound itself is a good guess; just below the best is what decides.
  void prove(Piece& piece, std::size_t width) {
    const Bytes goal = std::max(piece.lower, lower());
    if (goal < piece.upper && attempt(piece, goal, width, Effort::proof) == Verdict::found) return;
    while (std::max(piece.lower, lower()) < piece.upper)
      if (attempt(piece, piece.upper - 1, width, Effort::proof) != Verdict::found) return;
  }

  // Lowers the cap in growing steps as long as that finds better orders, and in shrinking ones when it does not.
  void improve(Piece& piece, std::size_t width) {
    const Bytes goal = std::max(piece.lower, lower());
    Bytes failed = goal - 1, step = width == 4 ? (piece.upper - goal) / 2 : piece.upper / 32;
    while (failed + 1 < piece.upper && !budget_.over()) {
      const Bytes cap = std::max({failed + 1, piece.lower, piece.upper - 1 - step});
      if (cap >= piece.upper) return;
      if (attempt(piece, cap, width, Effort::best) == Verdict::found) {
        step *= 2;
      } else {
        failed = cap;
        step /= 4;
        if (step < piece.upper / 1024) step = 0;
      }
    }
  }

  // How high can the bound be proven with this effort? Worth a few tries: it is the gap that is told in the end.
  void raise(Piece& piece, std::size_t width) {
    for (Bytes high = piece.upper - 1; high - piece.lower > piece.upper / 64 && !finished();) {
      const Bytes cap = piece.lower + (high - piece.lower) / 2;
      const Verdict verdict = attempt(piece, cap, width, Effort::proof);
      if (verdict == Verdict::found) return;
      if (verdict == Verdict::unknown) high = cap;
    }
  }

  // Re-orders windows around the first step at the peak, small ones first, as long as that helps.
  bool polish(std::size_t width) {
    bool better = false;
    for (int size = 12; size <= 192;) {
      Piece* piece = bottleneck();
      if (!piece || finished() || size / 2 >= piece->end - piece->begin) return better;
      const bool helped = polish_around(*piece, size, std::min<std::size_t>(width, 16384));
      better = better || helped;
      size = helped ? 12 : size * 2;
    }
    return better;
  }

  bool polish_around(Piece& piece, int size, std::size_t width) {
    const std::vector<Bytes> during = trace();
    int peak = piece.begin;
    while (during[peak] < piece.upper) ++peak;
    for (int eighths : {4, 2, 6, 1, 7}) {
      const int begin = std::max(piece.begin, peak - size * eighths / 8);
      int end = std::min(piece.end, begin + size);
      if (end <= peak) continue;
      // Glued nodes belong to the window of the node that makes them ready.
      while (end < piece.end && graph_.glued[order_[end]]) ++end;
      const Graph part = window(graph_, order_, begin, end);
      const Answer answer = either_way(part, piece.upper - 1, width, Effort::best);
      if (answer.verdict != Verdict::found) continue;
      const std::vector<int> old(order_.begin() + begin, order_.begin() + end);
      for (int k = 0; k < end - begin; ++k) order_[begin + k] = old[answer.order[k]];
      const std::vector<Bytes> now = trace();
      piece.upper = *std::max_element(now.begin() + piece.begin, now.begin() + piece.end);
      return true;
    }
    return false;
  }

  const Graph& graph_;
  std::vector<int> order_;
  const std::uint64_t seed_;
  Budget& budget_;
  std::vector<Piece> pieces_;
  Bytes fixed_ = 0;
  Direction first_ = Direction::forward;
};

}  // namespace

Outcome best_order(const Graph& graph, const std::vector<std::vector<int>>& starts, std::uint64_t seed,
                   Budget& budget) {
  if (graph.nodes == 0) return {{}, graph.start, graph.start};
  std::vector<int> listed(graph.nodes);
  std::iota(listed.begin(), listed.end(), 0);
  std::vector<int> best = settle(graph, listed);
  Bytes least = peak_of(graph, best);
  const auto consider = [&](const std::vector<int>& order) {
    if (const Bytes most = peak_of(graph, order); most < least) best = order, least = most;
  };
  for (const auto& start : starts) consider(settle(graph, start));
  consider(settle(graph, depth_first(graph)));
  // One state per layer and no cap: always the node that leaves least alive.
  const Graph ordered = window(graph, best, 0, graph.nodes);
  const Answer greedy = search_layers(ordered, kUnlimited, 1, Effort::best, Direction::forward, seed, budget);
  if (greedy.verdict == Verdict::found) {
    std::vector<int> order;
    order.reserve(greedy.order.size());
    for (int k : greedy.order) order.push_back(best[k]);
    consider(order);
  }
  return Search(graph, best, seed, budget).solve();
}

}  // namespace onnxmem::ordering
