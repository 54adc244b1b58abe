// Random problems through every part of the placement core, for a compiler's sanitizers to watch.
//
//   placement_fuzz SECONDS SEED
//
// Exits with 1 and says what is wrong at the first answer that cannot be right. The checks share no code with what
// they check.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include "placement_at_once.hpp"
#include "placement_greedy.hpp"
#include "placement_instance.hpp"
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
    for (Int step = std::max(lowers[a], lowers[b]); step < std::min(uppers[a], uppers[b]); ++step)
      if (at_a < at_b + size_at(b, step) && at_b < at_a + size_at(a, step)) return false;
    return true;
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
  std::exit(1);
}

void expect_valid(const Problem& problem, const std::vector<Int>& offsets, Int capacity) {
  for (std::size_t a = 0; a < problem.count(); ++a) {
    expect(offsets[a] >= 0 && offsets[a] <= capacity - problem.sizes[a], "an offset outside the arena", problem);
    for (std::size_t b = 0; b < a; ++b)
      expect(problem.apart(a, offsets[a], b, offsets[b]), "two buffers overlap", problem);
  }
}

// A rectangle of steps × capacity cut into pieces: known to fit, without any waste until something is trimmed.
Problem cut(Random& random, Int steps, Int capacity, std::size_t pieces, bool trim) {
  struct Rect {
    Int left, right, bottom, top;
  };
  std::vector<Rect> rects{{0, steps, 0, capacity}};
  for (int tries = 0; rects.size() < pieces && tries < 1000; ++tries) {
    const std::size_t i = random.below(rects.size());
    Rect& one = rects[i];
    Rect other = one;
    if (random.below(2) == 0) {
      if (one.right - one.left < 2) continue;
      one.right = other.left =
          one.left + 1 + static_cast<Int>(random.below(static_cast<std::size_t>(one.right - one.left - 1)));
    } else {
      if (one.top - one.bottom < 2) continue;
      one.top = other.bottom =
          one.bottom + 1 + static_cast<Int>(random.below(static_cast<std::size_t>(one.top - one.bottom - 1)));
    }
    rects.push_back(other);
  }
  Problem problem;
  for (Rect& rect : rects) {
    if (trim && random.below(8) == 0 && rect.right - rect.left > 1) rect.right -= 1;
    if (trim && random.below(8) == 0 && rect.top - rect.bottom > 1) rect.top -= 1;
    problem.add(rect.left, rect.right, rect.top - rect.bottom);
  }
  return problem;
}

// Live sizes that always sum to the capacity, replaced at random: tight, and not always possible.
Problem tight(Random& random, Int capacity, Int steps) {
  Problem problem;
  std::vector<std::pair<Int, Int>> live;  // size, start
  Int room = capacity;
  for (Int step = 0; step <= steps; ++step) {
    std::vector<std::pair<Int, Int>> stay;
    for (const auto& [size, start] : live) {
      if (step < steps && random.below(3) != 0) {
        stay.emplace_back(size, start);
        continue;
      }
      problem.add(start, step, size);
      room += size;
    }
    live = stay;
    while (step < steps && room > 0) {
      const Int size = 1 + static_cast<Int>(random.below(static_cast<std::size_t>(std::min<Int>(room, 5))));
      live.emplace_back(size, step);
      room -= size;
    }
  }
  return problem;
}

// Some buffers need less from some step on, once or twice.
void let_shrink(Random& random, Problem& problem) {
  for (std::size_t i = 0; i < problem.count(); ++i) {
    Int since = problem.lowers[i], size = problem.sizes[i];
    while (random.below(2) == 0 && problem.uppers[i] - since > 1 && size > 1) {
      since += 1 + static_cast<Int>(random.below(static_cast<std::size_t>(problem.uppers[i] - since - 1)));
      size -= 1 + static_cast<Int>(random.below(static_cast<std::size_t>(size - 1)));
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

struct Answer {
  Verdict verdict = Verdict::kFits;
  std::vector<Int> offsets;
};

Answer search(const Problem& problem, Int capacity, unsigned lanes, std::uint64_t seed, double seconds) {
  const Instance instance = reduce(problem.columns(), problem.shrinks);
  Watch watch(seconds, {});
  Answer all{Verdict::kFits, std::vector<Int>(problem.count(), 0)};
  for (const Part& part : instance.parts) {
    const RaceResult one = race(part, capacity / instance.unit, lanes, seed, seed % 2 ? 4096 : 1 << 22, watch);
    if (one.verdict == Verdict::kImpossible) return {Verdict::kImpossible, {}};
    if (one.verdict == Verdict::kUnknown) all.verdict = Verdict::kUnknown;
    for (std::size_t b = 0; b < one.offsets.size(); ++b)
      all.offsets[static_cast<std::size_t>(part.rows[b])] = one.offsets[b] * instance.unit;
  }
  if (all.verdict == Verdict::kFits) expect_valid(problem, all.offsets, capacity);
  return all;
}

void fuzz_known_to_fit(Random& random) {
  const Int capacity = 4 + static_cast<Int>(random.below(60));
  const Problem problem =
      cut(random, 2 + static_cast<Int>(random.below(40)), capacity, 2 + random.below(60), random.below(2) == 0);
  Problem shrunk = problem;
  let_shrink(random, shrunk);
  expect(search(shrunk, capacity, 2, random.next(), 0.2).verdict != Verdict::kImpossible,
         "a plan exists and some of it shrinks, but the search proves there is none", shrunk);
  const Answer answer = search(problem, capacity, 2, random.next(), 0.2);
  expect(answer.verdict != Verdict::kImpossible, "a plan exists, but the search proves there is none", problem);
}

void fuzz_against_trying(Random& random, bool shrinking) {
  const Int capacity = 4 + static_cast<Int>(random.below(9));
  Problem problem = tight(random, capacity, 3 + static_cast<Int>(random.below(8)));
  if (shrinking) let_shrink(random, problem);
  // What shrinks leaves room: the question is hard where a little more is wanted.
  for (std::size_t more = shrinking ? random.below(4) : 0; more > 0; --more) {
    const Int lower = static_cast<Int>(random.below(8));
    problem.add(lower, lower + 1 + static_cast<Int>(random.below(3)), 1 + static_cast<Int>(random.below(3)));
  }
  std::vector<Int> offsets;
  long patience = 100000;
  const int truth = fits_by_trying(problem, capacity, offsets, patience);
  const Answer answer = search(problem, capacity, 1 + static_cast<unsigned>(random.below(3)), random.next(), 5);
  if (truth < 0 || answer.verdict == Verdict::kUnknown) return;
  expect((answer.verdict == Verdict::kFits) == (truth == 1), "the search and trying everything disagree", problem);
}

void fuzz_same_answer_twice(Random& random) {
  const Problem problem = cut(random, 30, 50, 30, true);
  const std::uint64_t seed = random.next();
  const Answer once = search(problem, 50, 3, seed, 1), twice = search(problem, 50, 3, seed, 1);
  if (once.verdict != Verdict::kUnknown && twice.verdict != Verdict::kUnknown)
    expect(once.offsets == twice.offsets, "the same seed gave two plans", problem);
}

// The list, the live list and the tree must place alike; the slow way is to try all gaps.
void fuzz_greedy(Random& random) {
  const bool large = random.below(16) == 0;
  Problem problem;
  for (std::size_t i = large ? 4200 : 2 + random.below(40); i > 0; --i) {
    const Int lower = static_cast<Int>(random.below(large ? 2000 : 12));
    problem.add(lower, lower + 1 + static_cast<Int>(random.below(9)), static_cast<Int>(random.below(20)));
  }
  std::vector<Int> order(problem.count());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  if (random.below(2) == 0)
    std::stable_sort(order.begin(), order.end(), [&](Int a, Int b) {
      return problem.lowers[static_cast<std::size_t>(a)] < problem.lowers[static_cast<std::size_t>(b)];
    });
  Watch watch(60, {});
  const auto offsets = place_in_order(problem.columns(), order.data(), random.below(2) == 0, watch);
  expect(offsets.has_value(), "the greedy step ran out of time", problem);
  if (offsets && problem.count() < 100) expect_valid(problem, *offsets, kLargest);
  const AtOnce at_once = place_at_once(problem.columns());
  if (problem.count() < 100) expect_valid(problem, at_once.offsets, at_once.peak);
  expect(at_once.bound <= at_once.peak, "a plan is below the bound", problem);
}

// Numbers so large that careless sums would pass 2^63.
void fuzz_huge(Random& random) {
  const Int unit = kLargest / 64;
  Problem problem = cut(random, 8, 64, 12, false);
  for (Int& size : problem.sizes) size *= unit;
  for (std::size_t i = 0; i < problem.count(); ++i) {
    problem.lowers[i] = problem.lowers[i] * (kLargest / 8) - kLargest / 2;
    problem.uppers[i] = problem.uppers[i] * (kLargest / 8) - kLargest / 2;
  }
  if (random.below(2) == 0) problem.sizes[0] -= 1;  // so that the unit is 1
  const Answer answer = search(problem, kLargest, 2, random.next(), 0.5);
  expect(answer.verdict != Verdict::kImpossible, "a huge plan exists, but is proven impossible", problem);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  Random random(argc > 2 ? static_cast<std::uint64_t>(std::atoll(argv[2])) : 0);
  Watch watch(seconds, {});
  long rounds = 0;
  for (; !watch.over(); ++rounds) {
    fuzz_known_to_fit(random);
    fuzz_against_trying(random, false);
    fuzz_against_trying(random, true);
    fuzz_same_answer_twice(random);
    fuzz_greedy(random);
    fuzz_huge(random);
  }
  std::printf("%ld rounds\n", rounds);
  return rounds > 0 ? 0 : 1;
}
