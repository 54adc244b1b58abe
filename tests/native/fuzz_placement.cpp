// Problems through every part of the placement core. The checks share no code with what they check.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "fuzz_source.hpp"
#include "placement_at_once.hpp"
#include "placement_greedy.hpp"
#include "placement_instance.hpp"
#include "placement_interval_tree.hpp"
#include "placement_race.hpp"

using namespace onnxmem::placement;

namespace {

struct Problem {
  std::vector<Int> lowers, uppers, sizes;
  std::vector<Shrink> shrinks;

  std::size_t count() const { return sizes.size(); }
  Columns columns() const { return {lowers.data(), uppers.data(), sizes.data(), count()}; }
  bool meet(std::size_t a, std::size_t b) const { return lowers[a] < uppers[b] && lowers[b] < uppers[a]; }
  Int size_at(std::size_t i, Int step) const {
    Int size = sizes[i];
    for (const Shrink& shrink : shrinks)
      if (static_cast<std::size_t>(shrink.row) == i && shrink.step <= step) size = shrink.size;
    return size;
  }
  // Do a at one offset and b at another leave each other alone?
  bool apart(std::size_t a, Int at_a, std::size_t b, Int at_b) const {
    if (!meet(a, b) || !sizes[a] || !sizes[b] || at_a >= at_b + sizes[b] || at_b >= at_a + sizes[a]) return true;
    if (shrinks.empty()) return false;
    const Int begin = std::max(lowers[a], lowers[b]), end = std::min(uppers[a], uppers[b]);
    const auto collide = [&](Int step) { return at_a < at_b + size_at(b, step) && at_b < at_a + size_at(a, step); };
    // Sizes change at these steps only.
    return !collide(begin) && std::none_of(shrinks.begin(), shrinks.end(), [&](const Shrink& each) {
      return begin < each.step && each.step < end && collide(each.step);
    });
  }
  void add(Int lower, Int upper, Int size) {
    lowers.push_back(lower);
    uppers.push_back(upper);
    sizes.push_back(size);
  }
};

void expect(bool right, const char* what, const Problem& problem) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  for (std::size_t i = 0; i < problem.count(); ++i)
    std::printf("%zu,%lld,%lld,%lld\n", i, static_cast<long long>(problem.lowers[i]),
                static_cast<long long>(problem.uppers[i]), static_cast<long long>(problem.sizes[i]));
  for (const Shrink& shrink : problem.shrinks)
    std::printf("%d shrinks to %lld at %lld\n", shrink.row, static_cast<long long>(shrink.size),
                static_cast<long long>(shrink.step));
  std::fflush(stdout);
  std::abort();
}

void expect_valid(const Problem& problem, const std::vector<Int>& offsets, Int capacity) {
  for (std::size_t a = 0; a < problem.count(); ++a) {
    expect(offsets[a] >= 0 && offsets[a] <= capacity - problem.sizes[a], "an offset outside the arena", problem);
    for (std::size_t b = 0; b < a; ++b)
      expect(problem.apart(a, offsets[a], b, offsets[b]), "two buffers overlap", problem);
  }
}

// A rectangle of steps × capacity cut into pieces: known to fit, without any waste until something is trimmed.
Problem cut(Source& source, Int steps, Int capacity, std::size_t pieces, bool trim) {
  struct Rect {
    Int left, right, bottom, top;
  };
  std::vector<Rect> rects{{0, steps, 0, capacity}};
  for (int tries = 0; rects.size() < pieces && tries < 1000; ++tries) {
    const std::size_t i = source.below(rects.size());
    Rect& one = rects[i];
    Rect other = one;
    if (source.below(2) == 0) {
      if (one.right - one.left < 2) continue;
      one.right = other.left =
          one.left + 1 + static_cast<Int>(source.below(static_cast<std::size_t>(one.right - one.left - 1)));
    } else {
      if (one.top - one.bottom < 2) continue;
      one.top = other.bottom =
          one.bottom + 1 + static_cast<Int>(source.below(static_cast<std::size_t>(one.top - one.bottom - 1)));
    }
    rects.push_back(other);
  }
  Problem problem;
  for (Rect& rect : rects) {
    if (trim && source.below(8) == 0 && rect.right - rect.left > 1) rect.right -= 1;
    if (trim && source.below(8) == 0 && rect.top - rect.bottom > 1) rect.top -= 1;
    problem.add(rect.left, rect.right, rect.top - rect.bottom);
  }
  return problem;
}

// Live sizes that always sum to the capacity, replaced at random: tight, and not always possible.
Problem tight(Source& source, Int capacity, Int steps) {
  Problem problem;
  std::vector<std::pair<Int, Int>> live;  // size, start
  Int room = capacity;
  for (Int step = 0; step <= steps; ++step) {
    std::vector<std::pair<Int, Int>> stay;
    for (const auto& [size, start] : live) {
      if (step < steps && source.below(3) != 0) {
        stay.emplace_back(size, start);
        continue;
      }
      problem.add(start, step, size);
      room += size;
    }
    live = stay;
    while (step < steps && room > 0) {
      const Int size = 1 + static_cast<Int>(source.below(static_cast<std::size_t>(std::min<Int>(room, 5))));
      live.emplace_back(size, step);
      room -= size;
    }
  }
  return problem;
}

// Some buffers need less from some step on, once or twice.
void let_shrink(Source& source, Problem& problem) {
  for (std::size_t i = 0; i < problem.count(); ++i) {
    Int since = problem.lowers[i], size = problem.sizes[i];
    while (source.below(2) == 0 && problem.uppers[i] - since > 1 && size > 1) {
      since += 1 + static_cast<Int>(source.below(static_cast<std::size_t>(problem.uppers[i] - since - 1)));
      size -= 1 + static_cast<Int>(source.below(static_cast<std::size_t>(size - 1)));
      problem.shrinks.push_back({static_cast<Index>(i), since, size});
    }
  }
}

// Every offset for every buffer, one after the other. Nothing (-1) when that takes too long.
int fits_by_trying(const Problem& problem, Int capacity, std::vector<Int>& offsets, long& patience) {
  const std::size_t next = offsets.size();
  if (next == problem.count()) return 1;
  if (--patience < 0) return -1;
  for (Int offset = 0; offset + problem.sizes[next] <= capacity; ++offset) {
    bool free = true;
    for (std::size_t other = 0; other < next && free; ++other)
      free = problem.apart(next, offset, other, offsets[other]);
    if (!free) continue;
    offsets.push_back(offset);
    const int answer = fits_by_trying(problem, capacity, offsets, patience);
    offsets.pop_back();
    if (answer != 0) return answer;
  }
  return 0;
}

// With so much work and no more: an input takes as long as it takes on any machine, and the same path.
constexpr std::uint64_t kWork = 3'000;

// What a lane of a race does, in this thread: starting another one takes longer than most searches.
RaceResult alone(const Part& part, Int capacity, std::uint64_t seed, std::size_t memory, std::uint64_t work) {
  if (part.bound > capacity) return {Verdict::kImpossible, {}, 0};
  SkylineSearch search(part, capacity, memory);
  Tactician tactician(seed, 0);
  for (std::uint64_t attempt = 0; search.work() < work; ++attempt) {
    const Tactics tactics = tactician.choose(attempt);
    const Verdict verdict =
        search.run(tactics, patience_of(attempt, part.count()), [&] { return search.work() >= work; });
    if (verdict != Verdict::kUnknown) return {verdict, search.offsets(), search.nodes()};
    tactician.learn(tactics, search.most_placed());
  }
  return {};
}

// How many threads: mostly none.
unsigned lanes(Source& source) { return source.below(32) == 31 ? 1 + static_cast<unsigned>(source.below(3)) : 0; }

// Ctrl-C is seen when that many parts are done; never, for most inputs.
constexpr int kNever = 64;

Searched search(const Problem& problem, Int capacity, unsigned lanes, std::uint64_t seed, std::uint64_t work = kWork,
                int interrupted_after = kNever) {
  const Instance instance = reduce(problem.columns(), problem.shrinks);
  Watch watch(60, [&] { return interrupted_after <= 0; });
  const std::size_t memory = seed % 8 ? 4096 : 1 << 22;
  Searched all = search_parts(problem.count(), instance, work, watch, [&](const Part& part, std::uint64_t share) {
    const Int room = capacity / instance.unit;
    RaceResult one =
        lanes == 0 ? alone(part, room, seed, memory, share) : race(part, room, lanes, seed, memory, watch, share);
    if (interrupted_after != kNever && --interrupted_after <= 0) watch.over();
    return one;
  });
  if (planted() && !all.offsets.empty() && problem.count() > 6 && instance.unit > 1) all.offsets[3] ^= instance.unit;
  if (all.verdict == Verdict::kFits) expect_valid(problem, all.offsets, capacity);
  return all;
}

void fuzz_known_to_fit(Source& source) {
  const Int capacity = 4 + static_cast<Int>(source.below(60));
  const Problem problem = cut(source, 2 + static_cast<Int>(source.below(40)), capacity,
                              2 + source.below(source.below(4) ? 12 : 60), source.below(2) == 0);
  Problem shrunk = problem;
  let_shrink(source, shrunk);
  expect(search(shrunk, capacity, lanes(source), source.next()).verdict != Verdict::kImpossible,
         "a plan exists and some of it shrinks, but the search proves there is none", shrunk);
  const Searched answer = search(problem, capacity, lanes(source), source.next());
  expect(answer.verdict != Verdict::kImpossible, "a plan exists, but the search proves there is none", problem);
  Problem twice = problem;  // two parts: one of them alone is no plan
  for (std::size_t i = 0; i < problem.count(); ++i)
    twice.add(problem.lowers[i] + 64, problem.uppers[i] + 64, problem.sizes[i]);
  search(twice, capacity, lanes(source), source.next(), kWork, 1 + static_cast<int>(source.below(2)));
}

void fuzz_against_trying(Source& source, bool shrinking) {
  const Int capacity = 4 + static_cast<Int>(source.below(9));
  Problem problem = tight(source, capacity, 3 + static_cast<Int>(source.below(8)));
  if (shrinking) let_shrink(source, problem);
  // What shrinks leaves room: the question is hard where a little more is wanted.
  for (std::size_t more = shrinking ? source.below(4) : 0; more > 0; --more) {
    const Int lower = static_cast<Int>(source.below(8));
    problem.add(lower, lower + 1 + static_cast<Int>(source.below(3)), 1 + static_cast<Int>(source.below(3)));
  }
  std::vector<Int> offsets;
  const bool thorough = source.below(64) == 63;
  long patience = thorough ? 100'000 : 2'000;
  const int truth = fits_by_trying(problem, capacity, offsets, patience);
  const Searched answer = search(problem, capacity, lanes(source), source.next(), thorough ? 200 * kWork : 4 * kWork);
  if (truth < 0 || answer.verdict == Verdict::kUnknown) return;
  expect((answer.verdict == Verdict::kFits) == (truth == 1), "the search and trying everything disagree", problem);
}

void fuzz_same_answer_twice(Source& source) {
  const Problem problem = cut(source, 30, 50, 2 + source.below(28), true);
  const std::uint64_t seed = source.next();
  const unsigned threads = lanes(source);
  const Searched once = search(problem, 50, threads, seed), twice = search(problem, 50, threads, seed);
  if (once.verdict != Verdict::kUnknown && twice.verdict != Verdict::kUnknown)
    expect(once.offsets == twice.offsets, "the same seed gave two plans", problem);
}

// One buffer after the other; the list, the live list and, with many buffers, the tree.
void fuzz_greedy(Source& source) {
  const bool large = source.bytes(2) == 0xbeef;  // seldom: it takes a thousand times as long
  Random random(source.next());                  // more numbers than an input has bytes
  const auto below = [&](std::size_t count) {
    return static_cast<Int>(large ? random.below(count) : source.below(count));
  };
  Problem problem;
  for (std::size_t i = large ? 4200 : 2 + source.below(40); i > 0; --i) {
    const Int lower = below(large ? 2000 : 12);
    problem.add(lower, lower + 1 + below(9), below(20));
  }
  std::vector<Int> order(problem.count());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  if (source.below(2) == 0)
    std::stable_sort(order.begin(), order.end(), [&](Int a, Int b) {
      return problem.lowers[static_cast<std::size_t>(a)] < problem.lowers[static_cast<std::size_t>(b)];
    });
  Watch watch(60, {});
  const auto offsets = place_in_order(problem.columns(), order.data(), source.below(2) == 0, watch);
  expect(offsets.has_value(), "the greedy step ran out of time", problem);
  if (offsets && problem.count() < 100) expect_valid(problem, *offsets, kLargest);
  const AtOnce at_once = place_at_once(problem.columns());
  if (problem.count() < 100) expect_valid(problem, at_once.offsets, at_once.peak);
  Int most = 0;
  for (const Int lower : problem.lowers) {
    Int alive = 0;
    for (std::size_t i = 0; i < problem.count(); ++i)
      if (problem.lowers[i] <= lower && lower < problem.uppers[i]) alive += problem.sizes[i];
    most = std::max(most, alive);
    if (large) break;
  }
  expect(large || at_once.bound == most, "the bound is not what is alive at once", problem);
  expect(at_once.bound <= at_once.peak, "a plan is below the bound", problem);
}

// The tree against looking at all of them.
void fuzz_tree(Source& source) {
  Problem problem;
  for (std::size_t i = 1 + source.below(30); i > 0; --i) {
    const Int lower = static_cast<Int>(source.below(20));
    problem.add(lower, lower + 1 + static_cast<Int>(source.below(9)), static_cast<Int>(i));
  }
  IntervalTree tree(problem.lowers.data(), problem.count());
  const auto earlier = [](const Taken& a, const Taken& b) { return a.offset < b.offset; };
  for (std::size_t next = 0; next < problem.count(); ++next) {
    std::vector<Taken> found, truth;
    tree.collect(problem.lowers[next], problem.uppers[next], found);
    for (std::size_t other = 0; other < next; ++other)
      if (problem.meet(next, other)) truth.push_back({static_cast<Int>(other), problem.sizes[other]});
    std::sort(found.begin(), found.end(), earlier);
    expect(std::equal(found.begin(), found.end(), truth.begin(), truth.end(),
                      [](const Taken& a, const Taken& b) { return a.offset == b.offset && a.end == b.end; }),
           "the tree finds others than there are", problem);
    tree.insert(problem.lowers[next], problem.uppers[next], {static_cast<Int>(next), problem.sizes[next]});
  }
}

// Numbers so large that careless sums would pass 2^63.
void fuzz_huge(Source& source) {
  const Int unit = kLargest / 64;
  Problem problem = cut(source, 8, 64, 12, false);
  for (Int& size : problem.sizes) size *= unit;
  for (std::size_t i = 0; i < problem.count(); ++i) {
    problem.lowers[i] = problem.lowers[i] * (kLargest / 8) - kLargest / 2;
    problem.uppers[i] = problem.uppers[i] * (kLargest / 8) - kLargest / 2;
  }
  if (source.below(2) == 0) problem.sizes[0] -= 1;  // so that the unit is 1
  const Searched answer = search(problem, kLargest, lanes(source), source.next());
  expect(answer.verdict != Verdict::kImpossible, "a huge plan exists, but is proven impossible", problem);
}

// Any numbers at all: an answer, or the exception that Python is told.
void fuzz_anything(Source& source) {
  const Int numbers[] = {0, 1, 2, 3, 64, 1 << 20, Int{1} << 32, Int{1} << 61, kLargest - 1, kLargest};
  const auto number = [&] { return numbers[source.below(std::size(numbers))]; };
  Problem problem;
  for (std::size_t i = source.below(10); i > 0; --i) {
    const Int lower = std::min(number(), kLargest - 1);
    problem.add(lower, lower + 1 + std::min(number(), kLargest - lower - 1), number());
  }
  for (std::size_t i = source.below(4); i > 0; --i)
    problem.shrinks.push_back({static_cast<Index>(source.below(12)) - 1, number(), number()});
  try {
    search(problem, number(), lanes(source), source.next());
  } catch (const std::overflow_error&) {
  } catch (const std::invalid_argument&) {}
  problem.shrinks.clear();
  try {
    const AtOnce at_once = place_at_once(problem.columns());
    expect_valid(problem, at_once.offsets, at_once.peak);
  } catch (const std::overflow_error&) {}
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Source source(data, size);
  switch (source.below(8)) {
    case 0: fuzz_known_to_fit(source); break;
    case 1: fuzz_against_trying(source, false); break;
    case 2: fuzz_against_trying(source, true); break;
    case 3: fuzz_same_answer_twice(source); break;
    case 4: fuzz_greedy(source); break;
    case 5: fuzz_tree(source); break;
    case 6: fuzz_huge(source); break;
    default: fuzz_anything(source); break;
  }
  return 0;
}
