// Runs in which a place passes on from a buffer that dies to the one that is written over it.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "arena_play.hpp"

namespace onnxmem::arena {

namespace {

struct SharedRun {
  std::vector<Call> calls;
  std::vector<std::int64_t> over;  // by buffer: what it is written over, -1 for nothing
};

// As `random_calls`, but now and then a buffer is written over one of its size, which is freed right after.
SharedRun random_run(std::mt19937& random, int buffers) {
  SharedRun run;
  std::vector<std::pair<int, std::size_t>> alive;
  for (int next = 0; next < buffers;) {
    const std::size_t k = alive.empty() ? 0 : random() % alive.size();
    if (alive.empty() || random() % 3 == 0) {
      const std::size_t size = 1 + random() % (random() % 10 == 0 ? 40'000 : 2'000);
      run.calls.push_back({next, size});
      run.over.push_back(-1);
      alive.emplace_back(next++, size);
    } else if (random() % 2) {
      run.calls.push_back({next, alive[k].second});
      run.calls.push_back({alive[k].first, 0});
      run.over.push_back(alive[k].first);
      alive[k].first = next++;
    } else {
      run.calls.push_back({alive[k].first, 0});
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  for (const auto& [buffer, size] : alive) run.calls.push_back({buffer, 0});
  return run;
}

// What shares a place as one buffer: from the first one's start to the last one's end.
std::vector<std::int64_t> place_shared(const Trace& trace, const std::vector<std::int64_t>& over) {
  Trace merged;
  std::vector<std::size_t> of(over.size());
  for (std::size_t i = 0; i < over.size(); ++i) {
    if (over[i] < 0) {
      of[i] = merged.sizes.size();
      merged.sizes.push_back(trace.sizes[i]);
      merged.lowers.push_back(trace.lowers[i]);
      merged.uppers.push_back(trace.uppers[i]);
    } else {
      of[i] = of[static_cast<std::size_t>(over[i])];
      merged.uppers[of[i]] = trace.uppers[i];
    }
  }
  const auto places = place_in_sequence(merged);
  std::vector<std::int64_t> offsets(over.size());
  for (std::size_t i = 0; i < over.size(); ++i) offsets[i] = places[of[i]];
  return offsets;
}

// Plays a run; what was written over is not looked at any more. After the calls named by `until` it does something
// else: frees what is alive in any order.
void play_shared(const SharedRun& run, std::size_t until, std::mt19937& random) {
  std::vector<unsigned char*> blocks(run.over.size(), nullptr);
  std::vector<std::size_t> sizes(run.over.size(), 0);
  std::vector<bool> dead(run.over.size(), false);
  const auto give_back = [&](int buffer) {
    for (std::size_t k = 0; k < sizes[buffer] && !dead[buffer]; ++k)
      CHECK(blocks[buffer][k] == static_cast<unsigned char>(buffer));
    release(blocks[buffer]);
    blocks[buffer] = nullptr;
  };
  for (std::size_t step = 0; step < until; ++step) {
    const Call& call = run.calls[step];
    if (call.size == 0) {
      give_back(call.buffer);
      continue;
    }
    blocks[call.buffer] = static_cast<unsigned char*>(allocate(call.size));
    sizes[call.buffer] = call.size;
    const std::int64_t before = run.over[call.buffer];
    if (before >= 0 && blocks[before] == blocks[call.buffer]) dead[before] = true;
    std::memset(blocks[call.buffer], call.buffer, call.size);
  }
  std::vector<int> left;
  for (std::size_t buffer = 0; buffer < blocks.size(); ++buffer)
    if (blocks[buffer] != nullptr) left.push_back(static_cast<int>(buffer));
  std::shuffle(left.begin(), left.end(), random);
  // Something new between: it must not be given a place that somebody still holds.
  for (const int buffer : left) {
    auto* fresh = static_cast<unsigned char*>(allocate(sizes[buffer]));
    // It may be of the size that the tape expects next, and over what it says.
    for (std::size_t other = 0; other < blocks.size(); ++other)
      if (blocks[other] == fresh) dead[other] = true;
    std::memset(fresh, 0xEE, sizes[buffer]);
    give_back(buffer);
    release(fresh);
  }
}

void test_random_runs() {
  std::mt19937 random(5);
  const auto unknown = unknown_frees();
  for (int round = 0; round < 25; ++round) {
    const SharedRun run = random_run(random, 40);
    Trace trace;
    {
      RecordingRun recording(false);
      begin(recording);
      play_shared({run.calls, std::vector<std::int64_t>(run.over.size(), -1)}, run.calls.size(), random);
      end(recording);
      trace = recording.trace();
    }
    const std::size_t guard = round % 2 == 0 ? 0 : 64;
    Trace padded = trace;
    for (auto& size : padded.sizes) size = static_cast<std::int64_t>(footprint(static_cast<std::size_t>(size)) + guard);
    const Tape tape(trace, place_shared(padded, run.over), guard, false, run.over);
    Pool pool(1, true, false);
    for (const std::size_t until : {run.calls.size(), std::size_t{random() % (run.calls.size() + 1)}}) {
      const Pool::Loan loan = pool.acquire(tape.peak(), 1.0);
      CHECK(loan.answer == Pool::Answer::lent);
      ReplayingRun replaying(tape, *loan.region);
      begin(replaying);
      play_shared(run, until, random);
      end(replaying);
      const Replayed result = replaying.finish();
      CHECK(loan.region->live.empty());
      CHECK(result.overruns == 0);
      CHECK(until != run.calls.size() || !result.deviation);
      pool.release(*loan.region);
      CHECK(pool.stats().escaped == 0);
    }
  }
  CHECK(unknown_frees() == unknown);
}

bool refused(const Trace& trace, std::vector<std::int64_t> offsets, std::vector<std::int64_t> over) {
  try {
    const Tape tape(trace, std::move(offsets), 0, false, std::move(over));
    return false;
  } catch (const std::invalid_argument&) {
    return true;
  }
}

void test_wrong_pairs() {
  // a, b over it, and c beside: a is freed while b lives on.
  const Trace trace{{64, 64, 64}, {0, 1, 3}, {2, 5, 4}};
  CHECK(!refused(trace, {0, 0, 64}, {-1, 0, -1}));
  CHECK(refused(trace, {0, 0, 64}, {}));                                        // nobody said that they may
  CHECK(refused(trace, {0, 0, 64}, {-1, -1, -1}));                              // nor here
  CHECK(refused(trace, {0, 0, 64}, {-1, 0}));                                   // a column too short
  CHECK(refused(trace, {0, 0, 64}, {-1, 7, -1}));                               // over nothing
  CHECK(refused(trace, {0, 64, 128}, {-1, 0, -1}));                             // at another place
  CHECK(refused(trace, {-1, -1, 64}, {-1, 0, -1}));                             // without a place
  CHECK(refused(trace, {0, 0, 0}, {-1, 0, 1}));                                 // over one that outlives it
  CHECK(refused(trace, {0, 0, 64}, {1, -1, -1}));                               // the wrong way round
  CHECK(refused({{64, 64}, {0, 2}, {1, 3}}, {0, 0}, {-1, 0}));                  // over one that is gone
  CHECK(refused({{64, 128}, {0, 1}, {2, 3}}, {0, 0}, {-1, 0}));                 // over a smaller one
  CHECK(refused({{64, 64, 64}, {0, 1, 2}, {3, 4, 5}}, {0, 0, 0}, {-1, 0, 1}));  // three at once
  CHECK(refused({{64, 64, 64}, {0, 1, 2}, {3, 4, 5}}, {0, 0, 0}, {-1, 0, 0}));  // two over one
  CHECK(refused({{64, 64}, {0, 1}, {-1, 2}}, {0, 0}, {-1, 0}));                 // over one that outlives the run
}

// What has passed on is neither overwritten when the first of the two is freed, nor looked after less well.
void test_debugging() {
  const Trace trace{{64, 64}, {0, 1}, {2, 3}};
  const Tape tape(trace, {0, 0}, 64, false, {-1, 0});
  Pool pool(1, true, false);
  for (const bool overrun : {false, true}) {
    const Pool::Loan loan = pool.acquire(tape.peak(), 1.0);
    ReplayingRun run(tape, *loan.region);
    begin(run);
    auto* before = static_cast<unsigned char*>(allocate(64));
    auto* after = static_cast<unsigned char*>(allocate(64));
    CHECK(before == after);
    std::memset(after, 3, overrun ? 65 : 64);
    release(before);
    CHECK(after[0] == 3 && after[63] == 3);
    release(after);
    CHECK(after[0] != 3);
    end(run);
    const Replayed result = run.finish();
    CHECK(!result.deviation && result.overruns == (overrun ? 1 : 0));
    pool.release(*loan.region);
  }
}

}  // namespace

void test_shared_places() {
  test_wrong_pairs();
  test_debugging();
  test_random_runs();
}

}  // namespace onnxmem::arena
